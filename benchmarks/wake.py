"""Waiting on a SQLite file: how soon a publish of another process wakes a consumer, and what idle ones cost.

Between two publishes the same process sends the same event loop a bare datagram: how late that comes is what the
machine itself adds.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import tempfile
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple

from benchmarks.effective import sqlite_settings
from benchmarks.results import REPEATS, Report, Result, report
from godwit.brokers.contract import Ack
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.messages.envelope import Envelope
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import QueueSpec

QUEUE: Final = QueueName("q")
GROUP: Final = GroupName("default")
BODY: Final = b"x" * 200
LEASE: Final = timedelta(minutes=10)
LONG: Final = timedelta(minutes=1)
PER_SECOND: Final = 200
CONSUMERS: Final = 10
IDLE: Final = 100
WAKE_P99: Final = "publish returned to message arrived, p99"
BARE_P99: Final = "a bare datagram to the same loop, p99"
SETTLED_SECONDS: Final = 0.5
"""Until pulls that have just begun all wait."""

_processes = multiprocessing.get_context("forkserver")
Times = list[tuple[int, int, int]]
"""Of each publish: when it was called, when it returned, when a bare datagram followed; one clock for all processes."""


def publish_steadily(database: Path, count: int, line: Connection, bare: socket.socket) -> None:
    """Publish one message at a time at a steady rate, when the other side is ready; answer with the times."""
    line.send(asyncio.run(_publish_steadily(database, count, line, bare)))


async def _publish_steadily(database: Path, count: int, line: Connection, bare: socket.socket) -> Times:
    times: Times = []
    async with SqliteBroker(database) as broker:
        line.send("ready")
        line.recv()
        began = time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
            envelope = Envelope(MessageId(str(number)), QUEUE, BODY, len(BODY), SYSTEM_CLOCK.now_ms())
            called = time.monotonic_ns()
            await broker.publish([envelope])
            returned = time.monotonic_ns()
            await asyncio.sleep(max(0.0, began + (number + 0.5) / PER_SECOND - time.monotonic()))
            times.append((called, returned, time.monotonic_ns()))
            bare.send(b"wake up")
    return times


async def _consume(broker: SqliteBroker, arrived: dict[int, int], count: int) -> None:
    while len(arrived) < count:
        for delivery in await broker.pull(QUEUE, GROUP, worker="w", limit=1, lease=LEASE, wait=LONG):
            arrived[int(delivery.message_id)] = time.monotonic_ns()
            await broker.settle([Ack(delivery.ack_id)])


class Latencies(NamedTuple):
    """In milliseconds: from the call and the return of each publish to its message, and those of bare datagrams."""

    since_call: list[float]
    since_return: list[float]
    bare: list[float]


async def _latencies(folder: Path, count: int) -> Latencies:
    ours, theirs = multiprocessing.Pipe()
    bare_in, bare_out = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    arrived: dict[int, int] = {}
    bare: list[int] = []
    loop = asyncio.get_running_loop()
    loop.add_reader(bare_in, lambda: bare.append(time.monotonic_ns() if bare_in.recv(100) else 0))
    async with SqliteBroker(folder / "wake.db") as broker:
        await broker.declare(QueueSpec(name=QUEUE))
        publisher = _processes.Process(
            target=publish_steadily, args=(folder / "wake.db", count, theirs, bare_out), daemon=True
        )
        publisher.start()
        await asyncio.to_thread(ours.recv)
        consumers = [asyncio.create_task(_consume(broker, arrived, count)) for _ in range(CONSUMERS)]
        await asyncio.sleep(SETTLED_SECONDS)
        ours.send("go")
        times: Times = await asyncio.to_thread(ours.recv)
        await asyncio.wait_for(asyncio.wait(consumers, return_when=asyncio.FIRST_COMPLETED), LONG.total_seconds())
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
        publisher.join()
    loop.remove_reader(bare_in)
    bare_in.close()
    bare_out.close()
    if len(arrived) != count or len(bare) != count:
        raise AssertionError(f"{len(arrived)} messages and {len(bare)} datagrams of {count} arrived")
    return Latencies(
        [(arrived[number] - called) / 1e6 for number, (called, _, _) in enumerate(times)],
        [(arrived[number] - returned) / 1e6 for number, (_, returned, _) in enumerate(times)],
        [(came - sent) / 1e6 for came, (_, _, sent) in zip(bare, times, strict=True)],
    )


def idle_share(folder: Path, seconds: float, line: Connection) -> None:
    """Let consumers wait for nothing and answer with the share of a core that costs, in percent."""
    line.send(asyncio.run(_idle_share(folder, seconds)))


async def _idle_share(folder: Path, seconds: float) -> float:
    async with SqliteBroker(folder / "idle.db") as broker:
        await broker.declare(QueueSpec(name=QUEUE))
        pulls = [
            asyncio.create_task(broker.pull(QUEUE, GROUP, worker=f"w{n}", limit=10, lease=LEASE, wait=LONG))
            for n in range(IDLE)
        ]
        await asyncio.sleep(SETTLED_SECONDS)
        used, began = time.process_time(), time.monotonic()
        await asyncio.sleep(seconds)
        share = 100 * (time.process_time() - used) / (time.monotonic() - began)
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)
    return share


def _measured_idle_share(folder: Path, seconds: float) -> float:
    ours, theirs = multiprocessing.Pipe()
    process = _processes.Process(target=idle_share, args=(folder, seconds, theirs), daemon=True)
    process.start()
    share: float = ours.recv()
    process.join()
    return share


def run(*, count: int = 1_000, idle_seconds: float = 10, idle_repeats: int = 2, repeats: int = REPEATS) -> Report:
    """Measure wake-ups (p50 and p99 of each repeat) and the cost of waiting for nothing."""
    found: list[Latencies] = []
    shares: list[float] = []
    for repeat in range(max(repeats, idle_repeats)):
        with tempfile.TemporaryDirectory(prefix="godwit-wake-") as folder:
            if repeat < repeats:
                found.append(asyncio.run(_latencies(Path(folder), count)))
            if repeat < idle_repeats:
                shares.append(_measured_idle_share(Path(folder), idle_seconds))
    results = _wake_results(found) if found else []
    if shares:
        results.append(
            Result(
                name=f"{IDLE} consumers waiting for nothing",
                unit="% of a core",
                repeats=shares,
                goal=2,
                floor=2,
                lower_is_better=True,
            )
        )
    with tempfile.TemporaryDirectory(prefix="godwit-wake-") as folder:
        effective = asyncio.run(sqlite_settings(Path(folder), QueueSpec(name=QUEUE)))
    settings = {
        "load": f"{count:,} single publishes a repeat, {PER_SECOND}/s, by another process; {CONSUMERS} consumers wait",
        "idle": f"{IDLE} waiting pulls in one process, its CPU time over {idle_seconds:g} s",
        "a message that arrives before its publish has returned": "counts with a negative time",
        **effective,
    }
    return report("wake", settings, results)


def _wake_results(found: list[Latencies]) -> list[Result]:
    called, returned, bare = ([quantiles(values, n=100) for values in kind] for kind in zip(*found, strict=True))
    return [
        Result(
            name=WAKE_P99, unit="ms", repeats=[each[98] for each in returned], goal=5, floor=5, lower_is_better=True
        ),
        Result(name="publish returned to message arrived, p50", unit="ms", repeats=[each[49] for each in returned]),
        Result(name="publish called to message arrived, p50", unit="ms", repeats=[each[49] for each in called]),
        Result(name="publish called to message arrived, p99", unit="ms", repeats=[each[98] for each in called]),
        Result(name="a bare datagram to the same loop, p50", unit="ms", repeats=[each[49] for each in bare]),
        Result(name=BARE_P99, unit="ms", repeats=[each[98] for each in bare]),
    ]
