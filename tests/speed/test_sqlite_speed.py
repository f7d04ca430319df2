"""The SQLite broker keeps its share of a bare loop's speed.

`./dev bench sqlite` asserts the floors themselves on medians; here, beside whatever else the machine does, one try out
of several must come within a tenth of them.
"""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path

import pytest

from benchmarks.results import ratios
from benchmarks.sqlite import against_bare

TRIES = 5
PUBLISH_FLOOR, CONSUME_FLOOR = 0.6, 0.4
NOISE = 0.9


@pytest.mark.serial
@pytest.mark.timeout(180)
def test_publishing_and_consuming_keep_their_share_of_a_bare_loop(tmp_path: Path) -> None:
    tries: list[tuple[float, float]] = []
    for number in range(TRIES):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = asyncio.run(against_bare(folder, 10_000, 5))
        publish = statistics.median(ratios(found["bare publish"], found["publish"]))
        consume = statistics.median(ratios(found["bare consume"], found["consume"]))
        tries.append((publish, consume))
        if publish >= PUBLISH_FLOOR * NOISE and consume >= CONSUME_FLOOR * NOISE:
            return
    raise AssertionError(f"publish and consume, shares of the bare loop in {TRIES} tries: {tries}")
