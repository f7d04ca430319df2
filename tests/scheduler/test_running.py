"""When schedulers look, what they forget, how they tell that they live: the configuration takes effect."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from godwit.core.clock import from_ms, to_ms
from godwit.core.messages.message import Message
from godwit.core.settings import SchedulerSettings
from godwit.runtime.scheduler.ticker import next_tick_ms
from tests.scheduler.builders import HOUR, MINUTE, NOON, QUEUE
from tests.scheduler.memory_managers import MemoryManagers
from tests.store.conformance.harness import StoreHarness
from tests.waiting import eventually


@pytest.fixture
def managers(harness: StoreHarness) -> MemoryManagers:
    return MemoryManagers(harness.url)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (SchedulerSettings(), ["12:01:00", "12:02:00"]),
        (SchedulerSettings(precision=5 * MINUTE), ["12:05:00", "12:10:00"]),
        (SchedulerSettings(minute_schedule="*/15 * * * *"), ["12:15:00", "12:30:00"]),
        (SchedulerSettings(minute_schedule="*/2 * * * *", precision=5 * MINUTE), ["12:06:00", "12:10:00"]),
        (SchedulerSettings(minute_schedule="0 3 * * *"), ["03:00:00", "03:00:00"]),
    ],
)
def test_schedulers_tick_by_the_minute_schedule_and_not_below_the_precision(
    settings: SchedulerSettings, expected: list[str]
) -> None:
    at = to_ms(NOON) + 1_000
    found = []
    for _ in expected:
        at = next_tick_ms(settings, at)
        found.append(from_ms(at).strftime("%H:%M:%S"))
    assert found == expected


async def test_run_ticks_until_it_is_stopped(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        await mq.schedule_message(Message(queue=QUEUE), NOON + 2 * HOUR)
        running = asyncio.create_task(mq.scheduler.run())
        await eventually(lambda: mq.scheduler.health.last is not None)
        managers.clock.advance(HOUR)

        async def sent() -> bool:
            return await managers.waiting() == 1

        await eventually(sent)
        mq.scheduler.stop()
        await running
        assert await mq.scheduler.schedulers() == []


async def test_a_tick_tells_all_processes_and_the_metrics_how_it_went(managers: MemoryManagers) -> None:
    async with managers.open(SchedulerSettings(look_ahead=MINUTE)) as mq:
        await mq.schedule_message(Message(queue="missing"), NOON + 2 * HOUR)
        await mq.scheduler.tick()
        managers.clock.advance(3 * HOUR)
        health = await mq.monitor.get_health_status()
        (check,) = [one for one in health.checks if one.name == "scheduler"]
        assert not check.healthy
        assert "1 overdue, the oldest for 3600 s" in check.detail
        await mq.scheduler.tick()
        (entry,) = await mq.scheduler.schedulers()
        assert (entry.name, entry.last_tick_ms, entry.backlog) == ("scheduler-1", to_ms(managers.now), 0)
        text = str(await mq.monitor.render_metrics())
        assert "godwit_scheduler_last_tick_timestamp_seconds" in text
        health = await mq.monitor.get_health_status()
        (check,) = [one for one in health.checks if one.name == "scheduler"]
        assert check.healthy


async def test_a_scheduler_that_stopped_ticking_is_missed(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        await mq.scheduler.tick()
        managers.clock.advance(2 * MINUTE)
        check = mq.scheduler.check()
        assert (await check()).healthy
        managers.clock.advance(2 * MINUTE)
        assert not (await check()).healthy


async def test_finished_schedules_are_removed_at_the_cleanup_interval(managers: MemoryManagers) -> None:
    managers.clock.advance(datetime.now(UTC) - NOON)  # rows carry the database's own time of change
    async with managers.open(SchedulerSettings(cleanup_interval=HOUR)) as mq:
        await mq.scheduler.add(Message(queue=QUEUE), cron="* * * * *", max_occurrences=1, id="once")
        assert len(await mq.scheduler.list()) == 1
        managers.clock.advance(timedelta(days=31))
        await mq.scheduler.tick()
        assert await mq.scheduler.list() == []
