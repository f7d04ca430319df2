"""Schedules that a program puts whenever it starts: what changed in the code is applied, the rest is left alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.core.errors import QueueNotFound, UnknownArgument
from godwit.core.messages.message import Message
from godwit.core.schedule.schedules import ScheduleStatus
from godwit.manager import MessageQueueManager


@pytest.fixture
async def mq(tmp_path: Path) -> AsyncIterator[MessageQueueManager]:
    async with MessageQueueManager.from_url(f"sqlite:///{tmp_path}/shop.db") as mq:
        assert mq.store is not None
        await mq.store.migrations.upgrade()
        await mq.declare("reports")
        yield mq


def report(payload: object = "daily", queue: str = "reports") -> Message:
    return Message(queue=queue, type="report", payload=payload)


async def test_a_schedule_is_added_once_and_follows_the_code(mq: MessageQueueManager) -> None:
    put = mq.scheduler.put
    first = await put(report(), id="daily", cron="0 9 * * *")
    assert await put(report(), id="daily", cron="0 9 * * *") == first, "nothing changed, so nothing is taken back"
    later = await put(report(), id="daily", cron="0 10 * * *", timezone="Europe/Paris", jitter=timedelta(seconds=5))
    assert (later.version, later.rule.cron, later.rule.timezone) == (first.version + 1, "0 10 * * *", "Europe/Paris")
    other = await put(report("weekly"), id="daily", cron="0 10 * * *", timezone="Europe/Paris", jitter=timedelta(0))
    assert other.version == later.version + 1
    assert b"weekly" in other.message
    assert len(await mq.scheduler.list()) == 1


async def test_what_people_paused_or_cancelled_stays_so(mq: MessageQueueManager) -> None:
    await mq.scheduler.put(report(), id="daily", cron="0 9 * * *")
    await mq.scheduler.pause("daily")
    paused = await mq.scheduler.put(report(), id="daily", cron="0 10 * * *")
    assert (paused.status, paused.rule.cron) == (ScheduleStatus.PAUSED, "0 10 * * *")
    await mq.scheduler.cancel("daily")
    cancelled = await mq.scheduler.put(report(), id="daily", cron="0 11 * * *")
    assert (cancelled.status, cancelled.rule.cron) == (ScheduleStatus.CANCELLED, "0 10 * * *")


async def test_a_queue_that_is_not_declared_is_refused_at_once(mq: MessageQueueManager) -> None:
    with pytest.raises(QueueNotFound, match="Did you mean 'reports'"):
        await mq.scheduler.put(report(queue="report"), id="daily", cron="0 9 * * *")
    with pytest.raises(QueueNotFound, match="Did you mean 'reports'"):
        await mq.scheduler.add(report(queue="report"), cron="0 9 * * *")
    assert list(await mq.scheduler.list()) == []


async def test_an_unknown_option_is_refused(mq: MessageQueueManager) -> None:
    with pytest.raises(UnknownArgument, match="Did you mean 'max_occurrences'"):
        await mq.scheduler.put(report(), id="daily", cron="0 9 * * *", occurrences=3)
