"""The memory engine keeps its floors, at any size."""

from __future__ import annotations

import pytest

from benchmarks import memory
from tests.steal_time import calm

TRIES = 3
"""The floors themselves, but a busy moment of the machine does not count."""


@pytest.mark.serial
def test_the_memory_engine_stays_above_its_floors_at_any_size() -> None:
    below: list[str] = []
    for _ in range(TRIES):
        report = memory.run(count=20_000, clock=calm)
        below = [f"{one.name}: {one.median:,.2f} {one.unit}" for one in report.results if one.verdict == "BELOW"]
        if not below:
            return
    raise AssertionError(f"below the floor in the last of {TRIES} tries: {below}")
