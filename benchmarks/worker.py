"""The worker: messages per second through a handler that does nothing, against the bare broker, and its memory."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import resource
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks.results import REPEATS, Report, Result, interleaved, ratios, report
from godwit.brokers.contract import Ack, Broker
from godwit.brokers.memory import MemoryBroker
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.envelope import seal_all
from godwit.core.message import Message
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import QueueSpec
from godwit.manager import MessageQueueManager

QUEUE: Final = QueueName("q")
GROUP: Final = GroupName("default")
PAYLOAD: Final = {"id": 7, "text": "x" * 120}
CONCURRENCY: Final = 100
LEASE: Final = timedelta(seconds=15)
MEGABYTE: Final = 1 << 20
REMARKS: Final = (
    (
        "Of bare pull + settle on SQLite: a worker adds about 9 us a message (its task, decoding, the books for "
        "metrics, heartbeats and breakers) to the 11 us of the bare loop, and the bare loop became faster. Runs "
        "gave 0.35 to 0.56; the floor of 0.6 needs fewer tasks than messages."
    ),
)

Opener = Callable[[], Broker]


async def filled(broker: Broker, count: int) -> None:
    """Give a broker messages to work on."""
    await broker.declare(QueueSpec(name=QUEUE))
    for first in range(0, count, 1_000):
        size = min(1_000, count - first)
        await broker.publish(seal_all(Message(queue=QUEUE, type="order.created", payload=PAYLOAD) for _ in range(size)))


async def by_worker(broker: Broker, count: int) -> float:
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
    started = perf_counter()
    running = asyncio.create_task(worker.run())
    await done.wait()
    while not worker.is_idle():  # noqa: ASYNC110
        await asyncio.sleep(0)
    elapsed = perf_counter() - started
    worker.stop()
    await running
    if (await broker.stats())[0].groups[0].depth:
        raise AssertionError("not everything was settled")
    return count / elapsed


async def by_hand(broker: Broker, count: int) -> float:
    """Return the messages per second of pulling and settling without a worker, in the same batches."""
    gc.collect()
    started = perf_counter()
    left = count
    while left:
        deliveries = await broker.pull(QUEUE, GROUP, worker="bench", limit=CONCURRENCY, lease=LEASE)
        await broker.settle([Ack(delivery.ack_id) for delivery in deliveries])
        left -= len(deliveries)
    return count / (perf_counter() - started)


def rate(opener: Opener, way: Callable[[Broker, int], object], count: int) -> float:
    """Fill a fresh broker and measure one way to empty it."""

    async def measured() -> float:
        async with opener() as broker:
            await filled(broker, count)
            return await way(broker, count)  # type: ignore[misc,no-any-return]

    return asyncio.run(measured())


def _resident_megabytes(path: str, count: int, answer: multiprocessing.SimpleQueue[float]) -> None:
    """Measure a worker process of its own: its resident size after `count` messages."""

    async def run() -> None:
        async with SqliteBroker(Path(path)) as broker:
            await by_worker(broker, count)

    asyncio.run(run())
    # Not the largest size ever: that is inherited from the process that started this one.
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    answer.put(resident_pages * resource.getpagesize() / MEGABYTE)


def resident(folder: Path, count: int) -> float:
    """Return the megabytes a worker process needs for `count` messages on SQLite."""
    path = folder / f"resident-{count}.db"

    async def prepare() -> None:
        async with SqliteBroker(path) as broker:
            await filled(broker, count)

    asyncio.run(prepare())
    spawn = multiprocessing.get_context("spawn")
    answer: multiprocessing.SimpleQueue[float] = spawn.SimpleQueue()
    process = spawn.Process(target=_resident_megabytes, args=(str(path), count, answer))
    process.start()
    process.join()
    return answer.get()


def run(*, count: int = 20_000, sizes: tuple[int, int] = (5_000, 100_000), repeats: int = REPEATS) -> Report:
    """Measure rates, ratios and memory."""
    with tempfile.TemporaryDirectory() as name:
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
        small, large = (resident(folder, size) for size in sizes)
    results = [
        Result(name="worker on memory", unit="messages/s", repeats=rates["memory"], goal=60_000, floor=40_000),
        Result(name="worker on SQLite", unit="messages/s", repeats=rates["sqlite"]),
        Result(
            name="of bare pull + settle on SQLite",
            unit="x",
            repeats=ratios(rates["sqlite"], rates["bare sqlite"]),
            floor=0.6,
        ),
        Result(name=f"memory after {sizes[1]:,} on SQLite", unit="MB", repeats=[large], floor=50, lower_is_better=True),
        Result(
            name=f"memory at {sizes[1]:,} against {sizes[0]:,}",
            unit="x",
            repeats=[large / small],
            floor=1.25,
            lower_is_better=True,
        ),
    ]
    settings = {
        "load": f"handlers that do nothing, {CONCURRENCY} at once, one process, {count:,} messages a repeat",
        "messages": f"{len(str(PAYLOAD))} bytes of payload, one group, journal and dedup on, metrics on, lease {LEASE}",
    }
    return report("worker", settings, results, REMARKS)
