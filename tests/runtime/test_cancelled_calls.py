"""Every coroutine of a manager may be cancelled at any point: no lease, connection or lock stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from godwit import MessageQueueManager
from godwit.brokers.contract import Ack, Delivery
from godwit.brokers.memory import MemoryBroker
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.core.schedule.schedules import ScheduleStatus
from godwit.core.settings import Settings
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.worker import Worker, WorkerSettings
from godwit.store.urls import connect
from tests.cancellation import Moment, cancelled_everywhere
from tests.conformance.harness import LONG
from tests.scheduler.conftest import emptied
from tests.servers.redis import fresh
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)
Q: Final = QueueName("orders")
WITHIN: Final = timedelta(seconds=10)
Made = Callable[[], Awaitable[object]]


class Backend:
    """A broker and a store that outlive the managers on them."""

    def __init__(self, name: str, folder: Path) -> None:
        self.store_file = folder / "store.db"
        self.store_url = emptied() if name == "redis" else f"sqlite:///{self.store_file}"
        self._in_memory = name == "memory"
        self._url = fresh().url if name == "redis" else f"sqlite:///{folder / 'broker.db'}"

    def manager(self) -> MessageQueueManager:
        """Return a manager that is not open yet."""
        if self._in_memory:  # each manager has messages of its own
            return MessageQueueManager(MemoryBroker(), store=connect(self.store_url), settings=Settings())
        return MessageQueueManager.from_settings(Settings(broker_url=self._url, store_url=self.store_url))


@dataclass
class Prepared:
    """A manager before a call, and what the test itself holds."""

    backend: Backend
    mq: MessageQueueManager
    held: list[Delivery] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)
    others: list[MessageQueueManager] = field(default_factory=list)
    """Managers to close at the end."""

    def message(self, **fields: Any) -> Message:
        """Return a message with an id that none had before."""
        return Message(id=f"m{next(self.numbers)}", queue=Q, **fields)

    async def leased(self) -> Delivery:
        """Publish a message and lease it."""
        await self.mq.enqueue(self.message())
        (delivery,) = await self.mq.dequeue(Q, lease=LONG)
        self.held.append(delivery)
        return delivery

    async def lettered(self) -> Any:
        """Return the id of a dead letter."""
        await self.mq.reject_message(await self.leased(), "no such user", requeue=False)
        return (await self.mq.broker.dead_letters.page(Q))[0].id


Prepare = Callable[[Prepared], Awaitable[Made]]
CALLS: Final[dict[str, Prepare]] = {}
MAY_RETURN: Final = frozenset({"close", "run_a_worker"})
LONG_CALLS: Final = frozenset(
    {"run_a_worker", "change_a_schedule", "cancel_a_schedule", "schedule_again_and_again", "scheduler_tick"}
    | {"open_and_close", "status"}
)
"""Calls of many suspensions, cancelled at one moment of each instead of three."""


def prepared(prepare: Prepare) -> Prepare:
    """Add an entry to `CALLS` under the name of its function."""
    CALLS[prepare.__name__] = prepare
    return prepare


@prepared
async def enqueue(p: Prepared) -> Made:
    return lambda: p.mq.enqueue(p.message())


@prepared
async def enqueue_beside_others(p: Prepared) -> Made:
    async def call() -> None:
        others = [asyncio.create_task(p.mq.enqueue(p.message(ordering_key="k"))) for _ in range(3)]
        try:
            await p.mq.enqueue(p.message(ordering_key="k"))
        finally:
            await asyncio.shield(asyncio.gather(*others))

    return call


@prepared
async def enqueue_many(p: Prepared) -> Made:
    return lambda: p.mq.enqueue_many([p.message() for _ in range(450)])


@prepared
async def dequeue(p: Prepared) -> Made:
    await p.mq.enqueue_many([p.message() for _ in range(5)])

    async def call() -> None:
        p.held += await p.mq.dequeue(Q, limit=3, lease=LONG)

    return call


@prepared
async def acknowledge(p: Prepared) -> Made:
    delivery = await p.leased()
    return lambda: p.mq.acknowledge_message(delivery.message_id)


@prepared
async def reject(p: Prepared) -> Made:
    delivery = await p.leased()
    return lambda: p.mq.reject_message(delivery.message_id, "later")


@prepared
async def discard(p: Prepared) -> Made:
    message_id = await p.mq.enqueue(p.message())
    return lambda: p.mq.discard(Q, message_id)


@prepared
async def schedule_soon(p: Prepared) -> Made:
    return lambda: p.mq.schedule_message(p.message(), datetime.now(UTC) + timedelta(minutes=10))


@prepared
async def schedule_later(p: Prepared) -> Made:
    return lambda: p.mq.schedule_message(p.message(), datetime.now(UTC) + timedelta(days=2))


@prepared
async def schedule_again_and_again(p: Prepared) -> Made:
    return lambda: p.mq.schedule_message(p.message(), cron="* * * * *")


@prepared
async def cancel_a_schedule(p: Prepared) -> Made:
    schedule = await p.mq.scheduler.add(p.message(), cron="* * * * *")
    return lambda: p.mq.scheduler.cancel(schedule.id)


@prepared
async def change_a_schedule(p: Prepared) -> Made:
    schedule = await p.mq.scheduler.add(p.message(), cron="* * * * *")
    return lambda: p.mq.scheduler.update(schedule.id, cron="*/2 * * * *")


@prepared
async def scheduler_tick(p: Prepared) -> Made:
    await p.mq.scheduler.add(p.message(), cron="* * * * *")
    return p.mq.scheduler.tick


@prepared
async def schedule_many(p: Prepared) -> Made:
    due = datetime.now(UTC) + timedelta(days=2)
    campaign = f"c{next(p.numbers)}"
    return lambda: p.mq.scheduler.schedule_many(campaign, [(f"k{n}", due, p.message()) for n in range(20)])


@prepared
async def status(p: Prepared) -> Made:
    message_id = await p.mq.enqueue(p.message())
    return lambda: p.mq.status(message_id)


@prepared
async def once(p: Prepared) -> Made:
    async def call() -> None:
        async with p.mq.once(p.message().id) as first:
            if first:
                first.result = "done"
                await asyncio.sleep(0)

    return call


@prepared
async def outbox(p: Prepared) -> Made:
    if not p.backend.store_url.startswith("sqlite"):
        return p.mq.store_services.forwarder.tick

    async def call() -> None:
        with contextlib.closing(sqlite3.connect(p.backend.store_file, timeout=1)) as connection:
            await p.mq.outbox(connection).enqueue(p.message())
            connection.commit()
        await p.mq.store_services.forwarder.tick()

    return call


@prepared
async def record(p: Prepared) -> Made:
    await p.mq.enqueue_many([p.message() for _ in range(5)])
    return p.mq.store_services.recorder.tick


@prepared
async def pause_and_resume(p: Prepared) -> Made:
    async def call() -> None:
        await p.mq.control.pause(Q)
        await p.mq.control.resume(Q)

    return call


@prepared
async def drain(p: Prepared) -> Made:
    return lambda: p.mq.control.drain(Q)


@prepared
async def purge(p: Prepared) -> Made:
    await p.mq.enqueue(p.message())
    return lambda: p.mq.control.purge(Q)


@prepared
async def count_letters(p: Prepared) -> Made:
    await p.lettered()
    return p.mq.dead_letters.count


@prepared
async def replay_a_letter(p: Prepared) -> Made:
    letter = await p.lettered()
    return lambda: p.mq.dead_letters.replay(letter)


@prepared
async def replay_all_letters(p: Prepared) -> Made:
    await p.lettered()
    return p.mq.dead_letters.replay_all


@prepared
async def edit_and_replay(p: Prepared) -> Made:
    letter = await p.lettered()
    return lambda: p.mq.dead_letters.edit_and_replay(letter, lambda message: message)


@prepared
async def discard_all_letters(p: Prepared) -> Made:
    await p.lettered()
    return p.mq.dead_letters.discard_all


@prepared
async def health(p: Prepared) -> Made:
    return p.mq.monitor.get_health_status


@prepared
async def monitor_tick(p: Prepared) -> Made:
    return p.mq.monitor.tick


@prepared
async def instances(p: Prepared) -> Made:
    return p.mq.instances


@prepared
async def open_and_close(p: Prepared) -> Made:
    async def call() -> None:
        async with p.backend.manager() as other:
            await other.broker.declare(QueueSpec(name=Q))
            await other.enqueue(p.message())

    return call


@prepared
async def close(p: Prepared) -> Made:
    p.others.append(other := p.backend.manager())
    await other.__aenter__()
    await other.broker.declare(QueueSpec(name=Q))
    await other.enqueue(p.message())
    return other.close


@prepared
async def run_a_worker(p: Prepared) -> Made:
    await p.mq.enqueue_many([p.message() for _ in range(3)])

    async def call() -> None:
        left = 3

        async def handle(_: Message) -> None:
            nonlocal left
            await asyncio.sleep(0)
            left -= 1
            if not left:
                worker.stop()

        settings = WorkerSettings(grace=timedelta(seconds=0.2), heartbeat_interval=timedelta(minutes=1))
        consumer = Consumer(handler=handle, queues=(Q,), lease=timedelta(seconds=1))
        worker = Worker(p.mq.broker, [consumer], settings=settings)
        await worker.run()

    return call


async def is_well(p: Prepared, call: str) -> None:
    """See that no lease has no owner, no connection is in use, and that the next calls work."""
    mq = p.mq
    held, p.held = p.held, []
    async with asyncio.timeout(WITHIN.total_seconds()):
        await mq.broker.settle([Ack(delivery.ack_id) for delivery in held])
        await mq.control.resume(Q)

    async def nothing_leased() -> bool:
        await mq.broker.maintain()
        return all(group.leased == 0 for queue in await mq.broker.stats() for group in queue.groups)

    await eventually(nothing_leased, within=WITHIN, what="every lease has come back")
    await eventually(lambda: getattr(mq.broker, "busy_connections", 0) == 0, within=WITHIN, what="connections free")
    await eventually(lambda: busy_in_store(mq) == 0, within=WITHIN, what="connections of the store free")
    async with asyncio.timeout(WITHIN.total_seconds()):
        await mq.broker.purge(Q)
        await mq.broker.dead_letters.discard([letter.id for letter in await mq.broker.dead_letters.page(Q)])
        fresh_id = await mq.enqueue(p.message())
        (delivery,) = await mq.dequeue(Q)
        assert delivery.message_id == fresh_id
        await mq.acknowledge_message(fresh_id)
        if "schedule" in call:
            for schedule in await mq.scheduler.list(status=ScheduleStatus.ACTIVE):
                await mq.scheduler.cancel(schedule.id)
            await mq.scheduler.tick()
        if call in {"status", "record"}:
            await mq.store_services.recorder.catch_up()
            assert await mq.status(fresh_id) is not None


def busy_in_store(mq: MessageQueueManager) -> int:
    """Return how many connections of a PostgreSQL store's pool are lent."""
    pool = getattr(getattr(mq.store, "_database", None), "_pool", None)
    return 0 if pool is None else int(pool.get_size() - pool.get_idle_size())


@pytest.mark.parametrize("name", ["memory", "sqlite", "redis"])
@pytest.mark.parametrize("call", CALLS)
async def test_a_call_may_be_cancelled_at_any_point(name: str, call: str, tmp_path: Path) -> None:
    backend = Backend(name, tmp_path)
    async with backend.manager() as mq:
        await mq.broker.declare(QueueSpec(name=Q), [GroupSpec(name="default", max_crashes=None)])
        p = Prepared(backend, mq)
        made = await CALLS[call](p)

        def present() -> Awaitable[object]:
            return made()

        async def check() -> None:
            nonlocal made
            await is_well(p, call)
            made = await CALLS[call](p)

        moments = tuple(Moment)
        if call in LONG_CALLS:
            moments = (Moment.WITH_THE_ANSWER if name == "redis" else Moment.AFTER_THE_ANSWER,)
        await cancelled_everywhere(present, check, moments=moments, may_return=call in MAY_RETURN)
        for other in p.others:
            await other.close()
