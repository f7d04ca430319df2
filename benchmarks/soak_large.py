"""How long each call holds the event loop, with a million messages waiting, due or expiring: `./dev soak --large`."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.results import Report, Result, report
from tests.brokers.large_queues import HELD_SECONDS, KINDS, calls_on_a_large_queue
from tests.conformance.harness import Harness

MESSAGES = 1_000_000


def soak(console: Console) -> Report:
    """Make the calls on each kind of queue, in memory and on SQLite."""
    results = []
    for backend in ("memory", "sqlite"):
        for kind in KINDS:
            console.print(f"{backend}: {MESSAGES:,} messages {kind}")
            held = asyncio.run(_held(backend, kind))
            call = max(held, key=held.__getitem__)
            name = f"{backend}, {kind}: the longest call ({call})"
            held_ms = [held[call] * 1000]
            results.append(
                Result(name=name, unit="ms", repeats=held_ms, floor=HELD_SECONDS * 1000, lower_is_better=True)
            )
    settings = {"messages": f"{MESSAGES:,}", "measured": "processor time of the loop's thread between two turns"}
    return report("soak-large", settings, results)


async def _held(backend: str, kind: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(backend, Path(folder))
        await harness.start()
        held = await calls_on_a_large_queue(harness, kind, MESSAGES)
        await harness.stop()
    return held
