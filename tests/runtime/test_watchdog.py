"""A worker whose consumers stop pulling for whatever reason consumes again, and says what was wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from godwit.brokers.contract import Delivery
from godwit.brokers.memory import MemoryBroker
from godwit.brokers.memory.engine import MemoryEngine
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.errors import BrokerUnavailable
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec
from godwit.runtime.worker import watchdog
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.heartbeat import ConsumerInstance, InstanceStatus, instances
from godwit.runtime.worker.watchdog import Watched
from godwit.runtime.worker.worker import Worker, WorkerSettings
from tests.logs import capture_logs
from tests.steal_time import calm
from tests.waiting import eventually

Q = QueueName("q")
WITHIN = timedelta(seconds=5)


class MoodyBroker(MemoryBroker):
    """A memory broker whose pulls misbehave on demand, as clients of real servers were seen to do."""

    def __init__(self) -> None:
        super().__init__()
        self.mood: Callable[[], Any] | None = None
        self.away = False
        self.hanging = 0

    async def pull(self, *arguments: Any, **options: Any) -> list[Delivery]:
        """Pull, unless the mood is against it."""
        if self.mood is not None:
            await self.mood()
        return await super().pull(*arguments, **options)

    @property
    def engine(self) -> MemoryEngine:
        """The engine, unless the server is away."""
        if self.away:
            raise BrokerUnavailable("moody://", "the server is away", "Wait.")
        return super().engine

    async def hang(self) -> None:
        """Never answer, as a half-open connection does."""
        self.hanging += 1
        await asyncio.Event().wait()


@asynccontextmanager
async def at_work(*, consumers: int = 1) -> AsyncIterator[tuple[MoodyBroker, Worker, list[str]]]:
    """Run a worker on a moody broker."""
    seen: list[str] = []

    async def handler(message: Message) -> None:
        seen.append(message.payload)

    async with MoodyBroker() as broker:
        await broker.declare(QueueSpec(name=Q))
        found = [Consumer(handler=handler, queues=(Q,)) for _ in range(consumers)]
        settings = WorkerSettings(grace=timedelta(seconds=1), heartbeat_interval=timedelta(seconds=0.1))
        worker = Worker(broker, found, settings=settings)
        running = asyncio.create_task(worker.run())
        await publish(broker, "first")
        await eventually(lambda: seen == ["first"])
        try:
            yield broker, worker, seen
        finally:
            worker.stop()
            await asyncio.wait_for(running, 30)


async def publish(broker: MemoryBroker, payload: str) -> None:
    await broker.publish([seal(Message(queue=Q, payload=payload))])


async def instance(broker: MemoryBroker) -> ConsumerInstance:
    (one,) = await instances(broker.shared, SYSTEM_CLOCK)
    return one


async def has_failed(broker: MemoryBroker, word: str) -> bool:
    one = await instance(broker)
    return one.status is InstanceStatus.FAILED and word in (one.detail or "")


async def is_active(broker: MemoryBroker) -> bool:
    return (await instance(broker)).status is InstanceStatus.ACTIVE


async def test_a_consumer_that_broke_by_an_unforeseen_error_consumes_again() -> None:
    async with at_work() as (broker, worker, seen):

        async def breaks() -> None:
            broker.mood = None
            raise ZeroDivisionError("nobody foresaw this")

        broker.mood = breaks
        with capture_logs() as lines:
            await publish(broker, "second")
            await eventually(lambda: seen == ["first", "second"], within=WITHIN)
        assert worker.watchdog.restarts == 1
        assert any("ZeroDivisionError" in line.get("reason", "") for line in lines)


async def test_a_consumer_that_keeps_breaking_is_shown_as_failed_and_does_not_spin() -> None:
    async with at_work() as (broker, worker, seen):

        async def breaks() -> None:
            raise ZeroDivisionError

        broker.mood = breaks
        await publish(broker, "second")
        await eventually(lambda: worker.watchdog.restarts >= 2, within=WITHIN)
        await eventually(lambda: has_failed(broker, "ZeroDivisionError"), within=WITHIN)
        assert worker.watchdog.restarts < 10
        broker.mood = None
        await eventually(lambda: seen == ["first", "second"], within=WITHIN)
        await eventually(lambda: is_active(broker), within=WITHIN)


async def test_a_consumer_that_hangs_in_a_call_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("godwit.runtime.worker.worker.PATIENCE", timedelta(seconds=0.5))
    monkeypatch.setattr("godwit.runtime.delivery.puller.LONGEST_WAIT", timedelta(seconds=0.1))
    async with at_work() as (broker, worker, seen):
        broker.mood = broker.hang
        await publish(broker, "second")
        await eventually(lambda: broker.hanging > 0, within=WITHIN)
        broker.mood = None
        await eventually(lambda: seen == ["first", "second"], within=WITHIN)
        assert worker.watchdog.restarts >= 1


async def test_what_hung_through_an_outage_consumes_within_5_seconds_of_the_brokers_return() -> None:
    async with at_work(consumers=3) as (broker, _, seen):
        broker.mood = broker.hang
        for number in range(3):
            await publish(broker, f"lost wake-up {number}")
        await eventually(lambda: broker.hanging == 3, within=WITHIN)
        broker.away = True
        with capture_logs() as lines:
            await eventually(lambda: any(line["event"] == "shared state unknown" for line in lines), within=WITHIN)
            broker.mood, broker.away = None, False
            since = calm()
            await eventually(lambda: len(seen) == 4, within=WITHIN)
            assert calm() - since < 5
            assert any(line["event"] == "the broker answers again" for line in lines)


async def test_a_busy_consumer_is_not_taken_for_a_stuck_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "EVERY", timedelta(seconds=0.02))
    going = asyncio.Event()
    slots = [True]
    watched = Watched(
        going.wait,  # type: ignore[arg-type] # a coroutine that waits
        name="busy",
        passed=lambda: 0.0,
        has_room=lambda: slots[0],
        patience=timedelta(seconds=1),
    )
    watched.start()
    now = time.monotonic()
    slots[0] = False
    assert [watched.look(now + seconds) for seconds in (5, 50, 500)] == [None, None, None]
    slots[0] = True
    assert watched.look(now + 500.5) is None, "it had no free slot a moment ago"
    assert watched.look(now + 502) == "no progress for 2.0 s"


async def test_a_worker_whose_broker_hangs_can_still_be_stopped() -> None:
    async with at_work() as (broker, _, _seen):
        broker.mood = broker.hang
        await publish(broker, "never answered")
        await eventually(lambda: broker.hanging > 0, within=WITHIN)
    assert broker.hanging == 1, "at_work waited for the worker's end"
