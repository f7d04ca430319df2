"""What variables of the scheduler and of retention change: when schedulers look, what is kept of the past."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import Final

from godwit.brokers.sqlite import SqliteBroker
from godwit.core.clock import ManualClock, to_ms, utc_now
from godwit.core.messages.message import Message
from godwit.manager import MessageQueueManager
from godwit.store.urls import connect
from tests.config.effects.running_systems import Q, World, soon
from tests.waiting import real_time

DAY: Final = timedelta(days=1)
MINUTE: Final = timedelta(minutes=1)
TWO_LOOKS: Final = timedelta(seconds=1.1)
"""Of a scheduler at its clock."""
TABLES: Final = (
    "queue_messages_history",
    "queue_deliveries_history",
    "queue_analytics_minute",
    "queue_analytics_histogram",
)


async def cron_minute_schedule(world: World) -> None:
    world.set(CRON_MINUTE_SCHEDULE="*/15 * * * *")
    await ticks_after(world, 15)


async def scheduler_precision_minutes(world: World) -> None:
    world.set(SCHEDULER_PRECISION_MINUTES="10")
    await ticks_after(world, 10)


async def ticks_after(world: World, minutes: int) -> None:
    """See that a scheduler that runs ticks so many minutes after the first tick, and not sooner."""
    clock = ManualClock(to_ms(utc_now().replace(hour=12, minute=0, second=0, microsecond=0)))
    began = clock.now_ms()
    async with world.manager(clock=clock) as mq:
        running = asyncio.create_task(mq.scheduler.run())

        def last_ms() -> int:
            return mq.scheduler.health.last.last_tick_ms if mq.scheduler.health.last is not None else 0

        await soon(lambda: last_ms() == began)
        clock.advance((minutes - 1) * MINUTE)
        await real_time(TWO_LOOKS)
        assert last_ms() == began
        clock.advance(MINUTE)
        await soon(lambda: last_ms() == clock.now_ms())
        mq.scheduler.stop()
        await running


async def scheduler_cleanup_interval(world: World) -> None:
    world.set(SCHEDULER_CLEANUP_INTERVAL=str(2 * DAY // timedelta(milliseconds=1)), MONITORING_RETENTION_DAYS="1")
    clock = ManualClock(to_ms(utc_now()))
    async with world.declared(clock=clock) as mq:
        await mq.scheduler.add(Message(queue=Q), cron="* * * * *", max_occurrences=1, id="once")
        left = []
        for _ in range(3):
            await mq.scheduler.tick()
            left.append(len(await mq.scheduler.list()))
            clock.advance(1.25 * DAY)
    assert left == [1, 1, 0], "one day past its end it may go, but cleaning is due every two days"


async def monitoring_retention_days(world: World) -> None:
    await _past(world)
    _plant(world)
    assert _oldest(world) < [to_ms(utc_now() - 4 * DAY)] * len(TABLES)
    world.set(MONITORING_RETENTION_DAYS="2")
    async with world.manager() as mq:
        running = asyncio.create_task(mq.store_services.run())
        await soon(lambda: not any(_oldest(world)))
        running.cancel()


async def _past(world: World) -> None:
    """Let a message be handled five days ago."""
    file = world.folder / "godwit.db"
    clock = ManualClock(to_ms(utc_now() - 5 * DAY))
    broker = SqliteBroker(file, clock=clock)
    async with MessageQueueManager(broker, store=connect(f"sqlite:///{file}"), clock=clock) as mq:
        await mq.broker.declare(mq.settings.queue(Q).spec)
        await mq.enqueue(Message(queue=Q))
        (delivery,) = await mq.dequeue(Q)
        await mq.acknowledge_message(delivery)
        await mq.store_services.recorder.catch_up()


def _plant(world: World) -> None:
    """Write numbers of five days ago, as a pipeline does."""
    minute = to_ms(utc_now() - 5 * DAY)
    with closing(sqlite3.connect(world.folder / "godwit.db")) as connection, connection:
        connection.execute("INSERT INTO queue_analytics_minute (minute, queue_name) VALUES (?, ?)", (minute, Q))
        connection.execute(
            "INSERT INTO queue_analytics_histogram (minute, queue_name, metric, bucket, n) VALUES (?, ?, ?, 1, 1)",
            (minute, Q, "wait_ms"),
        )


def _oldest(world: World) -> list[int]:
    """Return the oldest time in each table, 0 where there is nothing."""
    with closing(sqlite3.connect(world.folder / "godwit.db")) as connection:
        columns = ["minute" if "analytics" in table else "finished_at" for table in TABLES]
        return [
            connection.execute(f"SELECT ifnull(min({column}), 0) FROM {table}").fetchone()[0]
            for table, column in zip(TABLES, columns, strict=True)
        ]
