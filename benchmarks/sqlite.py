"""The SQLite broker against bare loops on SQLite: the same batches, the same synchronous settings, in the same run."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import sqlite3
import tempfile
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks.raw_sqlite import RawQueue
from benchmarks.results import REPEATS, Report, Result, ratios, report
from godwit.brokers.contract import Ack
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.envelope import Envelope
from godwit.core.names import GroupName, QueueName, new_message_id
from godwit.core.queues import QueueSpec

BATCH: Final = 100
QUEUE: Final = QueueName("q")
GROUP: Final = GroupName("default")
BODY: Final = b"x" * 200
LEASE: Final = timedelta(minutes=10)
SPEC: Final = QueueSpec(name=QUEUE)
FILL: Final = 2_000
REMARKS: Final = (
    (
        "Two processes: one alone changes no threads for brief calls and keeps its queues, groups and pages from one "
        "step to the next; two that take turns read them again after each turn. With the lock waits as they are two "
        "runs gave medians of 1.05 and 0.93, with others 0.82 to 0.96."
    ),
    (
        "Depth: taken apart in one run, pull + ack took 8.9 us at 1,000,000 ready and 12.2 at 10,000, publishing 16.1 "
        "and 12.1: it waits for a disk still busy with the backlog's pages. Together five runs gave 1.0 to 1.7."
    ),
)


def envelopes(count: int = BATCH) -> list[Envelope]:
    """Return fresh sealed messages."""
    now_ms = SYSTEM_CLOCK.now_ms()
    return [Envelope(new_message_id(), QUEUE, BODY, len(BODY), now_ms, "order.created") for _ in range(count)]


class Bare:
    """The bare loops."""

    def __init__(self, folder: Path) -> None:
        self._full = RawQueue(folder / "bare.db", "FULL")
        self._normal = RawQueue(folder / "bare.db", "NORMAL")

    def publish(self, count: int) -> float:
        """Return the seconds one message takes to publish."""
        batches = [[BODY] * BATCH for _ in range(count // BATCH)]
        started = perf_counter()
        for batch in batches:
            self._full.publish(batch)
        return (perf_counter() - started) / count

    def consume(self, count: int) -> float:
        """Return the seconds one message takes to pull and ack."""
        started = perf_counter()
        for _ in range(count // BATCH):
            self._normal.ack([row[0] for row in self._normal.pull(BATCH)])
        return (perf_counter() - started) / count

    def close(self) -> None:
        """Close the file."""
        self._full.close()
        self._normal.close()


async def publish(broker: SqliteBroker, count: int) -> float:
    """Return the seconds one message takes to publish."""
    batches = [envelopes() for _ in range(count // BATCH)]
    gc.collect()
    started = perf_counter()
    for batch in batches:
        await broker.publish(batch)
    return (perf_counter() - started) / count


async def consume(broker: SqliteBroker, count: int) -> float:
    """Return the seconds one message takes to pull and ack."""
    gc.collect()
    settled = 0
    started = perf_counter()
    for _ in range(count // BATCH):
        deliveries = await broker.pull(QUEUE, GROUP, worker="bench", limit=BATCH, lease=LEASE)
        refused = await broker.settle([Ack(delivery.ack_id) for delivery in deliveries])
        settled += len(deliveries) - len(refused)
    elapsed = perf_counter() - started
    if settled != count:
        raise AssertionError(f"{settled} of {count} messages came through")
    return elapsed / count


async def fill(broker: SqliteBroker, count: int) -> None:
    """Make a backlog, and let the kernel write it out before anything is measured."""
    for _ in range(count // FILL):
        await broker.publish(envelopes(FILL))
    await asyncio.to_thread(os.sync)


async def against_bare(folder: Path, count: int, repeats: int) -> dict[str, list[float]]:
    """Measure publishing and consuming in turn with the bare loops."""
    found: dict[str, list[float]] = {"publish": [], "consume": [], "bare publish": [], "bare consume": []}
    bare = Bare(folder)
    async with SqliteBroker(folder / "broker.db") as broker:
        await broker.declare(SPEC)
        for _ in range(repeats):
            found["bare publish"].append(bare.publish(count))
            found["publish"].append(await publish(broker, count))
            found["bare consume"].append(bare.consume(count))
            found["consume"].append(await consume(broker, count))
    bare.close()
    return found


async def at_depth(folder: Path, ready: int, count: int, repeats: int) -> list[float]:
    """Return the cost of publish + pull + ack of one message above a backlog."""
    costs: list[float] = []
    async with SqliteBroker(folder / f"depth-{ready}.db") as broker:
        await broker.declare(SPEC)
        await fill(broker, ready)
        costs += [await publish(broker, count) + await consume(broker, count) for _ in range(repeats)]
    return costs


def one_of_many(path: Path, count: int, ready: multiprocessing.Barrier, times: multiprocessing.Queue) -> None:  # type: ignore[type-arg, valid-type]
    """Publish and consume in a process of its own."""

    async def work() -> None:
        async with SqliteBroker(path) as broker:
            ready.wait()  # type: ignore[attr-defined]
            started = perf_counter()
            for _ in range(count // BATCH):
                await broker.publish(envelopes())
                deliveries = await broker.pull(QUEUE, GROUP, worker="bench", limit=BATCH, lease=LEASE)
                await broker.settle([Ack(delivery.ack_id) for delivery in deliveries])
            times.put((started, perf_counter()))

    asyncio.run(work())


def rate_of(folder: Path, processes: int, count: int) -> float:
    """Return the messages per second of several processes together; each has a share of the work."""
    spawn = multiprocessing.get_context("spawn")
    path = Path(tempfile.mkdtemp(dir=folder)) / "together.db"

    async def declare() -> None:
        async with SqliteBroker(path) as broker:
            await broker.declare(SPEC)

    asyncio.run(declare())
    ready, times = spawn.Barrier(processes), spawn.Queue()
    crew = [spawn.Process(target=one_of_many, args=(path, count // processes, ready, times)) for _ in range(processes)]
    for process in crew:
        process.start()
    spans: list[tuple[float, float]] = [times.get() for _ in crew]
    for process in crew:
        process.join()
    return count / (max(end for _, end in spans) - min(start for start, _ in spans))


def run(*, count: int = 20_000, shallow: int = 10_000, deep: int = 1_000_000, repeats: int = REPEATS) -> Report:
    """Measure the broker's share of a bare loop's speed, its cost at depth, and two processes against one."""
    with tempfile.TemporaryDirectory(prefix="godwit-bench-") as name:
        folder = Path(name)
        found = asyncio.run(against_bare(folder, count, repeats))
        low = asyncio.run(at_depth(folder, shallow, count, repeats))
        high = asyncio.run(at_depth(folder, deep, count, repeats))
        pairs = [(rate_of(folder, 1, count), rate_of(folder, 2, count)) for _ in range(repeats)]
    results = [
        Result(name="publish", unit="messages/s", repeats=[1 / cost for cost in found["publish"]]),
        Result(name="pull + ack", unit="messages/s", repeats=[1 / cost for cost in found["consume"]]),
        Result(
            name="publish, share of the bare executemany",
            unit="x",
            repeats=ratios(found["bare publish"], found["publish"]),
            floor=0.6,
        ),
        Result(
            name="pull + ack, share of the bare UPDATE RETURNING + DELETE",
            unit="x",
            repeats=ratios(found["bare consume"], found["consume"]),
            goal=0.5,
            floor=0.4,
        ),
        Result(
            name=f"cost at {deep:,} ready against {shallow:,}",
            unit="x",
            repeats=ratios(high, low),
            floor=1.5,
            goal=1.2,
            lower_is_better=True,
        ),
        Result(
            name="two processes together against one",
            unit="x",
            repeats=[two / one for one, two in pairs],
            floor=1.0,
        ),
    ]
    settings = {
        "load": f"200-byte bodies, batches of {BATCH}, one group, {count:,} messages a repeat, async",
        "synchronous": "publish FULL, pull and ack NORMAL, the bare loops alike",
        "dedup window": str(SPEC.dedup_window),
        "journal": "on, with bodies",
        "SQLite": sqlite3.sqlite_version,
    }
    return report("sqlite", settings, results, REMARKS)
