"""The worker: messages per second through a handler that does nothing, against the bare broker, and its memory."""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks import crowd, worker_memory
from benchmarks.effective import memory_settings, sqlite_settings
from benchmarks.results import REPEATS, Report, Result, interleaved, ratios, report
from benchmarks.worker_memory import CONCURRENCY, PAYLOAD, QUEUE, filled
from godwit.brokers.contract import Ack, Broker
from godwit.brokers.memory import MemoryBroker
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.message import Message
from godwit.core.names import GroupName
from godwit.core.queues import QueueSpec
from godwit.manager import MessageQueueManager

GROUP: Final = GroupName("default")
LEASE: Final = timedelta(seconds=15)
MIXED: Final = (20, 10)
"""Processes, and consumers in each: the two hundred instances."""
WAITING: Final = (2, 50)
IDLE_SECONDS: Final = 10.0

REMARKS: Final = (
    (
        "Of bare pull + settle: the worker adds decoding, the handler in a context of its own, and the books for "
        "metrics, heartbeats and breakers; pulls and settlements of the same turn of the loop share a transaction."
    ),
    (
        "Waiting: about a third of a percent of a core is what each process costs, with its maintenance, heartbeats "
        "and watchdog; the consumers in it cost next to nothing."
    ),
)

Opener = Callable[[], Broker]
Clock = Callable[[], float]
Way = Callable[[Broker, int, Clock], Awaitable[float]]


async def by_worker(broker: Broker, count: int, clock: Clock) -> float:
    """Return the messages per second that a worker handles."""
    manager = MessageQueueManager(broker)
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
    if (await broker.stats())[0].groups[0].depth:
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


def rate(opener: Opener, way: Way, count: int, clock: Clock = perf_counter) -> float:
    """Fill a fresh broker and measure one way to empty it."""

    async def measured() -> float:
        async with opener() as broker:
            await filled(broker, count)
            return await way(broker, count, clock)

    return asyncio.run(measured())


def run(*, count: int = 40_000, memory_count: int = 1_000_000, repeats: int = REPEATS) -> Report:
    """Measure rates and ratios, the memory over many messages, and a crowd of instances."""
    with tempfile.TemporaryDirectory(prefix="godwit-bench-") as name:
        folder = Path(name)
        made = 0

        def sqlite() -> Broker:
            nonlocal made
            made += 1
            return SqliteBroker(folder / f"{made}.db")

        rates = interleaved(
            {
                "memory": lambda: rate(MemoryBroker, by_worker, count),
                "sqlite": lambda: rate(sqlite, by_worker, count),
                "bare sqlite": lambda: rate(sqlite, by_hand, count),
            },
            repeats,
        )
        sizes = worker_memory.sizes_on_the_way(folder, memory_count)
        shared = crowd.measure(folder, *MIXED, idle_seconds=IDLE_SECONDS)
        waiting = crowd.measure(folder, *WAITING, idle_seconds=IDLE_SECONDS)
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
        *worker_memory.results(sizes, memory_count),
        *crowd.results(shared, *MIXED),
        *crowd.results(waiting, *WAITING, idle_floor=2.0),
    ]
    settings = {
        "load": f"handlers that do nothing, {CONCURRENCY} at once, one process, {count:,} messages a repeat",
        "messages": f"{len(str(PAYLOAD))} bytes of payload, one group, metrics on, lease {LEASE}",
        "instances": crowd.LOAD,
        **effective,
    }
    return report("worker", settings, results, REMARKS)
