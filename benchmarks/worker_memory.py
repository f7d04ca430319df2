"""The memory of a worker process on SQLite, with all its defaults, looked at on its way through a backlog."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from benchmarks.defaults import as_by_default
from benchmarks.effective import sqlite_settings
from benchmarks.results import Report, Result, report
from godwit.brokers.contract import Broker
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.messages.envelope import seal_all
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec

QUEUE: Final = QueueName("q")
PAYLOAD: Final = {"id": 7, "text": "x" * 120}
CONCURRENCY: Final = 100
MEGABYTE: Final = 1 << 20
LOOKS: Final = 10
"""How often the memory is looked at, the last time after the last message."""

WARM_UP: Final = 30_000
"""Messages handled before the first look: until then caches fill and statements are prepared, as anywhere."""

_processes = multiprocessing.get_context("spawn")


async def filled(broker: Broker, count: int) -> None:
    """Give a broker messages to work on."""
    await broker.declare(QueueSpec(name=QUEUE))
    for first in range(0, count, 1_000):
        size = min(1_000, count - first)
        await broker.publish(seal_all(Message(queue=QUEUE, type="order.created", payload=PAYLOAD) for _ in range(size)))


def _megabytes() -> float:
    # Not the largest size ever: that is inherited from the process that started this one.
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / MEGABYTE


def _work(path: Path, count: int, line: Connection) -> None:
    """Empty a file with a worker in a process of its own; answer with its resident sizes on the way."""
    sizes: list[float] = []

    async def run() -> None:
        handled = -WARM_UP
        done = asyncio.Event()
        async with as_by_default(path) as manager:

            @manager.consumer(QUEUE, concurrency=CONCURRENCY)
            async def handler(_: Message) -> None:
                nonlocal handled
                handled += 1
                if handled > 0 and handled % (count // LOOKS) == 0:
                    sizes.append(_megabytes())
                if handled == count:
                    done.set()

            worker = manager.worker()
            running = asyncio.create_task(worker.run())
            await done.wait()
            worker.stop()
            await running

    asyncio.run(run())
    line.send(sizes)


def sizes_on_the_way(folder: Path, count: int) -> list[float]:
    """Return the megabytes a worker process needs after each tenth of `count` messages."""
    path = folder / f"memory-{count}.db"

    async def prepare() -> None:
        async with SqliteBroker(path) as broker:
            await filled(broker, WARM_UP + count)

    asyncio.run(prepare())
    ours, theirs = _processes.Pipe()
    process = _processes.Process(target=_work, args=(path, count, theirs), daemon=True)
    process.start()
    sizes: list[float] = ours.recv()
    process.join()
    return sizes


def results(sizes: list[float], count: int) -> list[Result]:
    """Judge the sizes: small, and flat."""
    most = Result(
        name=f"memory over {count:,} on SQLite, at most",
        unit="MB",
        repeats=[max(sizes)],
        floor=50,
        lower_is_better=True,
    )
    flat = Result(
        name=f"memory after {count:,} against a tenth of it",
        unit="x",
        repeats=[sizes[-1] / sizes[0]],
        floor=1.1,
        lower_is_better=True,
    )
    return [most, flat, Result(name="memory after each tenth", unit="MB", repeats=sizes)]


def run(*, count: int = 1_000_000) -> Report:
    """Let one worker process empty a long queue, and look at it ten times."""
    import tempfile  # here: the process that is measured loads this module, and shall load what a worker loads

    with tempfile.TemporaryDirectory(prefix="godwit-bench-") as name:
        folder = Path(name)
        sizes = sizes_on_the_way(folder, count)
        effective = asyncio.run(sqlite_settings(folder, QueueSpec(name=QUEUE)))
    settings = {
        "load": f"{count:,} messages after {WARM_UP:,} to warm up, handlers that do nothing, {CONCURRENCY} at once",
        "messages": f"{len(str(PAYLOAD))} bytes of payload, one group, metrics on",
        "on SQLite": "as `godwit worker` by default: recorder, scheduler and outbox in the same file and process",
        **effective,
    }
    return report("worker_memory", settings, results(sizes, count))
