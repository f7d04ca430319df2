"""The SQLite broker keeps its share of a bare loop's speed.

`./dev bench sqlite` asserts the floors themselves on medians; here, beside whatever else the machine does, one try out
of several must come within a tenth of them.
"""

from __future__ import annotations

import asyncio
import statistics
from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks import sqlite_depth, sqlite_together
from benchmarks.effective import memory_settings, sqlite_settings
from benchmarks.results import ratios
from benchmarks.sqlite import against_bare, publish_shares
from benchmarks.sqlite_load import SPEC
from godwit.core.queues import QueueSpec

TRIES = 5
PUBLISH_FLOOR, CONSUME_FLOOR = 0.6, 0.4
NOISE = 0.9
DEPTHS = (10_000, 100_000)
FLAT = 1.25


@pytest.mark.serial
def test_publishing_and_consuming_keep_their_share_of_a_bare_loop(tmp_path: Path) -> None:
    tries: list[tuple[float, float]] = []
    for number in range(TRIES):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = asyncio.run(against_bare(folder, 10_000, 5))
        publish = statistics.median(publish_shares(found))
        consume = statistics.median(ratios(found["bare consume"], found["consume"]))
        tries.append((publish, consume))
        if publish >= PUBLISH_FLOOR * NOISE and consume >= CONSUME_FLOOR * NOISE:
            return
    raise AssertionError(f"publish and consume, shares of the bare loop in {TRIES} tries: {tries}")


@pytest.mark.serial
def test_the_processor_time_of_a_message_does_not_grow_with_what_waits(tmp_path: Path) -> None:
    tries: list[list[float]] = []
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        results = sqlite_depth.results(asyncio.run(sqlite_depth.costs(folder, DEPTHS, 5_000, 5)))
        tries.append([one.median for one in results if one.name.startswith("processor time") and one.floor is not None])
        if max(tries[-1]) <= FLAT:
            return
    raise AssertionError(f"publish and consume, {DEPTHS[1]:,} ready against {DEPTHS[0]:,}: {tries}")


@pytest.mark.serial
def test_two_processes_together_are_not_slower_than_one(tmp_path: Path) -> None:
    tries: list[float] = []
    while len(tries) < TRIES and max(tries, default=0) < NOISE:
        pairs = sqlite_together.shares(tmp_path, 5_000, 5)
        tries.append(statistics.median(two / one for one, two in pairs))
    assert max(tries) >= NOISE, tries


def test_benchmarks_measure_the_settings_users_get(tmp_path: Path) -> None:
    settings = asyncio.run(sqlite_settings(tmp_path, SPEC))
    assert set(settings) == {"durability", "dedup window", "journal", "lanes"}
    assert set(asyncio.run(memory_settings(SPEC))) == {"dedup window", "journal", "lanes"}
    with pytest.raises(AssertionError, match="settings"):
        asyncio.run(memory_settings(QueueSpec(name=SPEC.name, dedup_window=timedelta(0))))
