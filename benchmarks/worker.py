"""The worker: messages per second through a handler that does nothing, against the bare broker."""

from __future__ import annotations

import asyncio
import gc
import tempfile
from datetime import timedelta
from itertools import count as count_up
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

from benchmarks import crowd
from benchmarks.defaults import as_by_default, recorded
from benchmarks.effective import memory_settings, sqlite_settings
from benchmarks.results import REPEATS, Clock, Report, Result, interleaved, ratios, report
from benchmarks.worker_memory import CONCURRENCY, PAYLOAD, QUEUE, filled
from godwit.brokers.contract import Ack, Broker
from godwit.brokers.memory import MemoryBroker
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.journal.statuses import Status
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.names import GroupName
from godwit.core.queues import QueueSpec
from godwit.manager import MessageQueueManager
from godwit.store.sqlite.store import SqliteStore

GROUP: Final = GroupName("default")
LEASE: Final = timedelta(seconds=15)
MIXED: Final = (20, 10)
"""Processes, and consumers in each: the two hundred instances."""
WAITING: Final = (2, 50)
APART: Final = (10, 10)
IDLE_SECONDS: Final = 10.0

REMARKS: Final = (
    (
        "Of bare pull + settle: the worker adds decoding, the handler in a context of its own, and the books for "
        "metrics, heartbeats and breakers; pulls and settlements of the same turn of the loop share a transaction."
    ),
    (
        "On SQLite everything runs that `godwit worker` runs by default. While messages come faster than they can be "
        "recorded the recorder yields, and catches up afterwards; see decision 0057."
    ),
    (
        "Waiting: about a third of a percent of a core is what each process costs, with its maintenance, heartbeats "
        "and watchdog; the consumers in it cost next to nothing."
    ),
)


async def by_worker(manager: MessageQueueManager, count: int, clock: Clock) -> float:
    """Return the messages per second that a worker handles."""
    left = count
    done = asyncio.Event()

    @manager.consumer(QUEUE, concurrency=CONCURRENCY)
    async def handler(_: Message) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    worker = manager.worker()
    gc.collect()
    started = clock()
    running = asyncio.create_task(worker.run())
    await done.wait()
    while not worker.is_idle():  # noqa: ASYNC110
        await asyncio.sleep(0)
    elapsed = clock() - started
    worker.stop()
    await running
    if (await manager.broker.stats())[0].groups[0].depth:
        raise AssertionError("not everything was settled")
    return count / elapsed


async def by_hand(broker: Broker, count: int, clock: Clock) -> float:
    """Return the messages per second of pulling and settling without a worker, in the same batches."""
    gc.collect()
    started = clock()
    left = count
    while left:
        deliveries = await broker.pull(QUEUE, GROUP, worker="bench", limit=CONCURRENCY, lease=LEASE)
        await broker.settle([Ack(delivery.ack_id) for delivery in deliveries])
        left -= len(deliveries)
    return count / (clock() - started)


def on_memory(count: int, clock: Clock = perf_counter) -> float:
    """Return the rate of a worker on a broker in memory, which has no store by default."""

    async def measured() -> float:
        async with MessageQueueManager(MemoryBroker()) as manager:
            await filled(manager.broker, count)
            return await by_worker(manager, count, clock)

    return asyncio.run(measured())


class Recorded(NamedTuple):
    """How a worker with all its defaults got on, and its recorder after it."""

    rate: float
    by_the_recorder: float
    """Messages per second from the start until all was recorded."""
    status_seconds: float
    """How long it took, right after the last message, to say where one of them stood."""


def on_sqlite(path: Path, count: int, clock: Clock = perf_counter, *, until_recorded: bool = True) -> Recorded:
    """Return how a worker on a fresh file gets on, with the recorder and the scheduler that run by default."""

    async def measured() -> Recorded:
        async with SqliteBroker(path) as broker:
            await filled(broker, count)
            (last,) = await broker.publish([seal(Message(queue=QUEUE, type="order.created", payload=PAYLOAD))])
        async with SqliteStore(path) as store:
            await store.ping()  # the tables are made once in the life of a file
        async with as_by_default(path) as manager:
            began = clock()
            rate = await by_worker(manager, count + 1, clock)
            asked = perf_counter()
            status = await manager.status(last.id)
            status_seconds = perf_counter() - asked
            if status is None or status.status is not Status.COMPLETED:
                raise AssertionError(f"a message that was handled stands as {status}")
            if until_recorded:
                await recorded(manager)
            return Recorded(rate, count / (clock() - began), status_seconds)

    return asyncio.run(measured())


def bare(path: Path, count: int, clock: Clock = perf_counter) -> float:
    """Return the rate of pulling and settling on a fresh file by hand."""

    async def measured() -> float:
        async with SqliteBroker(path) as broker:
            await filled(broker, count)
            return await by_hand(broker, count, clock)

    return asyncio.run(measured())


def run(*, count: int = 40_000, repeats: int = REPEATS) -> Report:
    """Measure rates and ratios, and a crowd of instances; its memory is a benchmark of its own."""
    with tempfile.TemporaryDirectory(prefix="godwit-bench-") as name:
        folder = Path(name)
        fresh = (folder / f"{number}.db" for number in count_up())
        runs: list[Recorded] = []

        def sqlite() -> float:
            runs.append(on_sqlite(next(fresh), count))
            return runs[-1].rate

        rates = interleaved(
            {
                "memory": lambda: on_memory(count),
                "sqlite": sqlite,
                "bare sqlite": lambda: bare(next(fresh), count),
            },
            repeats,
        )
        shared = crowd.measure(folder, *MIXED, idle_seconds=IDLE_SECONDS)
        waiting = crowd.measure(folder, *WAITING, idle_seconds=IDLE_SECONDS)
        apart = crowd.measure(folder, *APART, idle_seconds=IDLE_SECONDS)
        asyncio.run(memory_settings(QueueSpec(name=QUEUE)))
        effective = asyncio.run(sqlite_settings(folder, QueueSpec(name=QUEUE)))
    results = [
        Result(name="worker on memory", unit="messages/s", repeats=rates["memory"], goal=60_000, floor=40_000),
        Result(name="worker on SQLite", unit="messages/s", repeats=rates["sqlite"]),
        Result(
            name="of bare pull + settle on SQLite",
            unit="x",
            repeats=ratios(rates["sqlite"], rates["bare sqlite"]),
            floor=0.6,
        ),
        Result(
            name="until all is recorded as well, on SQLite",
            unit="messages/s",
            repeats=[one.by_the_recorder for one in runs],
        ),
        Result(
            name="status right after the last message, on SQLite",
            unit="s",
            repeats=[one.status_seconds for one in runs],
            floor=1.0,
            lower_is_better=True,
        ),
        *crowd.results(shared, *MIXED),
        *crowd.results(waiting, *WAITING, idle_floor=2.0),
        *crowd.results(apart, *APART)[-1:],
    ]
    settings = {
        "load": f"handlers that do nothing, {CONCURRENCY} at once, one process, {count:,} messages a repeat",
        "messages": f"{len(str(PAYLOAD))} bytes of payload, one group, metrics on, lease {LEASE}",
        "on SQLite": "as `godwit worker` by default: recorder, scheduler and outbox in the same file and process",
        "instances": crowd.LOAD,
        **effective,
    }
    return report("worker", settings, results, REMARKS)
