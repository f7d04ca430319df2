"""The memory engine keeps its floors, at any size."""

from __future__ import annotations

import pytest

from benchmarks import memory


@pytest.mark.serial
@pytest.mark.timeout(120)
def test_the_memory_engine_stays_above_its_floors_at_any_size() -> None:
    report = memory.run(count=20_000)
    below = [
        f"{result.name}: {result.median:,.2f} {result.unit}" for result in report.results if result.verdict == "BELOW"
    ]
    assert not below
