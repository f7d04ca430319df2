"""Schedules over brokers with a server of their own: sent ahead, delivered at the time, once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.contract import Ack
from godwit.core.clock import to_ms, utc_now
from godwit.core.messages.message import Message
from godwit.core.queues import QueueSpec
from godwit.core.settings import SchedulerSettings, Settings
from godwit.manager import MessageQueueManager
from tests.scheduler.conftest import emptied
from tests.servers.rabbitmq import the_node
from tests.servers.redis import fresh
from tests.waiting import eventually

AHEAD = timedelta(seconds=4)


@pytest.fixture(params=["sqlite", "redis", pytest.param("rabbitmq", marks=pytest.mark.xdist_group("rabbitmq"))])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    match request.param:
        case "redis":
            yield fresh().url
        case "rabbitmq":
            yield f"{the_node().url}?ledger={tmp_path / 'ledger.db'}"
        case _:
            yield f"sqlite:///{tmp_path / 'broker.db'}"


def manager(url: str, store: str, *, look_ahead: timedelta) -> MessageQueueManager:
    scheduler = SchedulerSettings(look_ahead=look_ahead)
    return MessageQueueManager.from_settings(Settings(broker_url=url, store_url=store, scheduler=scheduler))


async def test_a_message_from_the_store_is_delivered_at_its_time_and_once(url: str) -> None:
    store = emptied()
    queue = f"mail-{to_ms(utc_now())}"
    async with (
        manager(url, store, look_ahead=timedelta(0)) as caller,
        manager(url, store, look_ahead=timedelta(hours=1)) as scheduler,
        manager(url, store, look_ahead=timedelta(hours=1)) as twin,
    ):
        await scheduler.broker.declare(QueueSpec(name=queue))
        due = utc_now() + AHEAD
        known = await caller.schedule_message(Message(queue=queue, payload="late"), due)
        # Two schedulers, and one of them a second time: the store keeps them apart.
        sent = [(await one.scheduler.tick()).sent for one in (scheduler, twin, scheduler)]
        assert sent == [1, 0, 0]
        came: list[tuple[str, int]] = []

        async def delivered() -> bool:
            pulled = await scheduler.broker.pull(
                queue, "default", worker="w", limit=10, lease=timedelta(minutes=1), wait=timedelta(seconds=1)
            )
            came.extend((one.message_id, to_ms(utc_now())) for one in pulled)
            await scheduler.broker.settle([Ack(one.ack_id) for one in pulled])
            return bool(came)

        await eventually(delivered, within=timedelta(seconds=30), what="the message")
        ((message_id, at_ms),) = came
        assert message_id == known
        assert at_ms >= to_ms(due)
