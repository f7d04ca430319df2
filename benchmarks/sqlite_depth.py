"""Whether the cost of a message on SQLite grows with what waits: processor time apart from the disk's.

Both files are made the same way and open at the same time; before each measurement the log is moved into the file and
the kernel has written everything out, so neither pays for the other's pages. The wall clock also counts the disk, which
is the machine's.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.results import Result, ratios
from benchmarks.sqlite_load import BATCH, SPEC, Cost, consume, envelopes, publish
from godwit.brokers.sqlite import SqliteBroker

FILL: Final = 2_000
LOAD: Final = f"batches of {BATCH} above backlogs made by publishes of {FILL:,}; the log in the file, the disk idle"


class Costs(NamedTuple):
    """Of one message at one depth, repeat by repeat."""

    publish: list[Cost]
    consume: list[Cost]


async def fill(broker: SqliteBroker, count: int) -> None:
    """Make a backlog."""
    for _ in range(count // FILL):
        await broker.publish(envelopes(FILL))


def settle_down(path: Path) -> None:
    """Move the log into the file and let the kernel write everything out."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    os.sync()


async def costs(folder: Path, depths: tuple[int, ...], count: int, repeats: int) -> dict[int, Costs]:
    """Measure publishing and consuming above backlogs, one depth after the other in every repeat."""
    found = {depth: Costs([], []) for depth in depths}
    async with AsyncExitStack() as stack:
        brokers: dict[int, tuple[Path, SqliteBroker]] = {}
        for depth in depths:
            path = folder / f"depth-{depth}.db"
            broker = await stack.enter_async_context(SqliteBroker(path))
            await broker.declare(SPEC)
            await fill(broker, depth)
            brokers[depth] = (path, broker)
        for _ in range(repeats):
            for depth, (path, broker) in brokers.items():
                for measured, into in zip((publish, consume), found[depth], strict=True):
                    await asyncio.to_thread(settle_down, path)
                    into.append(await measured(broker, count))
    return found


def results(found: dict[int, Costs]) -> list[Result]:
    """Compare the deepest with the shallowest."""
    shallow, deep = min(found), max(found)
    rows: list[Result] = []
    for name, low, high in zip(("publish", "pull + ack"), found[shallow], found[deep], strict=True):
        for kind, field, goal, floor in (
            ("processor time of ", "processor", 1.1, 1.25),
            ("time of ", "wall", 1.2, 1.5),
        ):
            below, above = ([getattr(cost, field) for cost in each] for each in (low, high))
            rows.append(
                Result(
                    name=f"{kind}{name} at {deep:,} ready against {shallow:,}",
                    unit="x",
                    repeats=ratios(above, below),
                    goal=goal,
                    floor=floor,
                    lower_is_better=True,
                )
            )
        for depth, each in ((shallow, low), (deep, high)):
            repeats = [cost.processor * 1e6 for cost in each]
            rows.append(Result(name=f"processor time of {name} at {depth:,} ready", unit="us", repeats=repeats))
    return rows
