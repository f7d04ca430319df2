"""Several processes on one SQLite file: messages per second together, each with a share of the work."""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

from benchmarks.sqlite_load import BATCH, GROUP, LEASE, QUEUE, SPEC, envelopes
from godwit.brokers.contract import Ack
from godwit.brokers.sqlite import SqliteBroker

_processes = multiprocessing.get_context("spawn")


def one_of_many(path: Path, count: int, line: Connection) -> None:
    """Publish and consume in a process of its own, when told to; answer with the times."""

    async def work() -> None:
        async with SqliteBroker(path) as broker:
            line.send("ready")
            line.recv()
            started = perf_counter()
            for _ in range(count // BATCH):
                await broker.publish(envelopes())
                deliveries = await broker.pull(QUEUE, GROUP, worker="bench", limit=BATCH, lease=LEASE)
                await broker.settle([Ack(delivery.ack_id) for delivery in deliveries])
            line.send((started, perf_counter()))

    asyncio.run(work())


def rate_of(folder: Path, processes: int, count: int) -> float:
    """Return the messages per second of several processes together."""
    path = Path(tempfile.mkdtemp(dir=folder)) / "together.db"

    async def declare() -> None:
        async with SqliteBroker(path) as broker:
            await broker.declare(SPEC)

    asyncio.run(declare())
    crew, lines = [], []
    for _ in range(processes):
        ours, theirs = _processes.Pipe()
        process = _processes.Process(target=one_of_many, args=(path, count // processes, theirs), daemon=True)
        process.start()
        crew.append(process)
        lines.append(ours)
    for line in lines:
        line.recv()
    for line in lines:
        line.send("go")
    spans: list[tuple[float, float]] = [line.recv() for line in lines]
    for process in crew:
        process.join()
    return count / (max(end for _, end in spans) - min(start for start, _ in spans))


def shares(folder: Path, count: int, repeats: int) -> list[tuple[float, float]]:
    """Measure one process and two in turn."""
    return [(rate_of(folder, 1, count), rate_of(folder, 2, count)) for _ in range(repeats)]
