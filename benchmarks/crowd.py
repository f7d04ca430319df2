"""Two hundred consumer instances on one SQLite file: whether all get work, and what they cost while there is none.

Each process is all that `godwit worker` runs by default (without `store` all but scheduler and books), with several
consumers of the same queue and group; each consumer counts for itself.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.defaults import as_by_default, without_store
from benchmarks.results import Result
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.messages.envelope import seal_all
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec

QUEUE: Final = QueueName("q")
CONCURRENCY: Final = 2
HANDLER_SECONDS: Final = 0.02
"""Handlers wait, as real ones do for what they call: then there is something to share."""
MESSAGES_EACH: Final = 20
SETTLED_SECONDS: Final = 2.0
RECORDED_SECONDS: Final = 3.0
"""With a store: then the last of the work is recorded, and whoever looks for more does so as seldom as it ever will."""
LEAST_SHARE: Final = 0.25
LOAD: Final = (
    f"workers with several consumers of one queue and group, {CONCURRENCY} messages at once each, handlers of "
    f"{HANDLER_SECONDS * 1000:g} ms, {MESSAGES_EACH} messages for each instance"
)

_processes = multiprocessing.get_context("forkserver")


class Crowd(NamedTuple):
    """What came of it."""

    handled: list[int]
    """By each instance."""
    seconds: float
    idle_percent: float
    """Of a core, all processes together, while nothing is there to do."""


def _handler(counts: list[int], index: int) -> Callable[[Message], Awaitable[None]]:
    async def handler(_: Message) -> None:
        counts[index] += 1
        await asyncio.sleep(HANDLER_SECONDS)

    return handler


def one_process(path: Path, consumers: int, line: Connection, *, store: bool) -> None:
    """Run a worker with several consumers; answer questions about it until told to stop."""

    async def work() -> None:
        counts = [0] * consumers
        async with (as_by_default if store else without_store)(path) as manager:
            for index in range(consumers):
                manager.consumer(QUEUE, concurrency=CONCURRENCY)(_handler(counts, index))
            worker = manager.worker()
            running = asyncio.create_task(worker.run())
            line.send("ready")
            while (asked := await asyncio.to_thread(line.recv)) != "stop":
                line.send(sum(counts) if asked == "handled" else (counts, time.process_time()))
            worker.stop()
            await running

    asyncio.run(work())


async def publish(path: Path, count: int) -> None:
    """Give them something to do."""
    async with SqliteBroker(path) as broker:
        for _ in range(0, count, 100):
            await broker.publish(seal_all(Message(queue=QUEUE, payload={"id": 7}) for _ in range(100)))


def measure(
    folder: Path,
    processes: int,
    consumers: int,
    *,
    idle_seconds: float,
    each: int = MESSAGES_EACH,
    patience: float = 120,
    store: bool = True,
) -> Crowd:
    """Let `processes` x `consumers` instances share `each` messages per instance, then wait for nothing."""
    path = folder / f"crowd-{processes}-{consumers}.db"
    asyncio.run(_declare(path))
    crew, lines = [], []
    for _ in range(processes):
        ours, theirs = _processes.Pipe()
        process = _processes.Process(
            target=one_process, args=(path, consumers, theirs), kwargs={"store": store}, daemon=True
        )
        process.start()
        crew.append(process)
        lines.append(ours)
    _ask(lines, None)
    count = processes * consumers * each
    started = time.monotonic()
    asyncio.run(publish(path, count))
    while sum(_ask(lines, "handled")) < count:
        if time.monotonic() - started > patience:
            raise AssertionError(f"{sum(_ask(lines, 'handled'))} of {count} messages handled in {patience:g} s")
        time.sleep(0.05)
    seconds = time.monotonic() - started
    time.sleep(SETTLED_SECONDS + RECORDED_SECONDS * store)
    before, began = _ask(lines, "counts"), time.monotonic()
    time.sleep(idle_seconds)
    after, waited = _ask(lines, "counts"), time.monotonic() - began
    used = sum(late[1] - early[1] for early, late in zip(before, after, strict=True))
    for line in lines:
        line.send("stop")
    for process in crew:
        process.join(30)
    return Crowd([one for counts, _ in after for one in counts], seconds, 100 * used / waited)


async def _declare(path: Path) -> None:
    async with SqliteBroker(path) as broker:
        await broker.declare(QueueSpec(name=QUEUE))


def _ask(lines: Sequence[Connection], question: str | None) -> list[Any]:
    if question is not None:
        for line in lines:
            line.send(question)
    return [line.recv() for line in lines]


def results(crowd: Crowd, processes: int, consumers: int, *, idle_floor: float | None = None) -> list[Result]:
    """Judge a crowd."""
    instances = f"{processes * consumers} instances ({processes} processes x {consumers})"
    mean = sum(crowd.handled) / len(crowd.handled)
    return [
        Result(
            name=f"{instances}: the least work of one, of the mean",
            unit="x",
            repeats=[min(crowd.handled) / mean],
            floor=LEAST_SHARE,
        ),
        Result(
            name=f"{instances}: instances without work",
            unit="of them",
            repeats=[crowd.handled.count(0)],
            floor=0,
            lower_is_better=True,
        ),
        Result(name=f"{instances}: together", unit="messages/s", repeats=[sum(crowd.handled) / crowd.seconds]),
        Result(
            name=f"{instances} waiting for nothing",
            unit="% of a core",
            repeats=[crowd.idle_percent],
            floor=idle_floor,
            lower_is_better=True,
        ),
    ]
