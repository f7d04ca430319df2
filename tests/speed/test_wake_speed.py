"""Waiting consumers of a SQLite file wake soon, and cost next to nothing while they wait."""

from __future__ import annotations

import pytest

from benchmarks import wake

TRIES = 5
GOAL_MS = 5
BARE_TIMES = 4
"""A wake-up is a datagram, a look at the file and a commit in another thread: on a busy machine each waits its turn."""


@pytest.mark.serial
def test_waiting_consumers_wake_within_5_ms_of_a_publish_of_another_process() -> None:
    """Other work on the machine only ever adds: the best of a few tries counts, and a late machine excuses."""
    seen = []
    for _ in range(TRIES):
        results = {result.name: result.median for result in wake.run(count=300, repeats=1, idle_repeats=0).results}
        wake_ms, bare_ms = results[wake.WAKE_P99], results[wake.BARE_P99]
        seen.append(f"{wake_ms:.1f} ms, a bare datagram {bare_ms:.1f} ms")
        if wake_ms <= max(GOAL_MS, BARE_TIMES * bare_ms):
            return
    raise AssertionError(f"p99 of each try: {'; '.join(seen)}")


@pytest.mark.serial
def test_100_waiting_consumers_cost_under_2_percent_of_a_core() -> None:
    (share,) = wake.run(repeats=0, idle_repeats=1, idle_seconds=3).results
    assert share.verdict == "goal", share
