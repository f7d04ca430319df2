"""A worker adds little to its broker, many share the work, and none grows.

`./dev bench worker` asserts the floors by the clock on the wall; here, beside whatever else the machine does, processor
time is measured, and one try out of several counts.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from statistics import median
from time import process_time

import pytest

from benchmarks import crowd, worker_memory
from benchmarks.worker import bare, on_memory, on_sqlite

TRIES = 4
COUNT = 20_000
DEFAULT_COUNT = 40_000
"""The load of the benchmark, for a worker with all its defaults: recorder and scheduler have a start of their own."""
MEMORY_FLOOR, SQLITE_FLOOR = 40_000, 0.6


@pytest.mark.serial
def test_a_worker_on_memory_handles_40_000_messages_in_a_second() -> None:
    seen: list[float] = []
    while len(seen) < TRIES and max(seen, default=0) < MEMORY_FLOOR:
        seen.append(on_memory(COUNT, process_time))
    assert max(seen) >= MEMORY_FLOOR, seen


@pytest.mark.serial
def test_a_worker_on_sqlite_reaches_its_share_of_the_bare_broker(tmp_path: Path) -> None:
    fresh = (tmp_path / f"{number}.db" for number in count())
    seen: list[float] = []
    while len(seen) < TRIES and max(seen, default=0) < SQLITE_FLOOR:
        pairs = [
            (
                on_sqlite(next(fresh), DEFAULT_COUNT, process_time, until_recorded=False).rate,
                bare(next(fresh), DEFAULT_COUNT, process_time),
            )
            for _ in range(3)
        ]
        seen.append(median(ours / theirs for ours, theirs in pairs))
    assert max(seen) >= SQLITE_FLOOR, seen


@pytest.mark.serial
def test_the_memory_of_a_worker_is_small_and_flat(tmp_path: Path) -> None:
    small, flat, _ = worker_memory.results(worker_memory.sizes_on_the_way(tmp_path, 100_000), 100_000)
    assert small.reaches(small.floor), small
    assert flat.reaches(flat.floor), flat


@pytest.mark.serial
def test_120_instances_in_several_processes_share_the_work_and_none_starves(tmp_path: Path) -> None:
    shared = crowd.measure(tmp_path, 5, 24, idle_seconds=0)
    mean = sum(shared.handled) / len(shared.handled)
    assert min(shared.handled) >= mean * crowd.LEAST_SHARE, sorted(shared.handled)


@pytest.mark.serial
@pytest.mark.parametrize(("processes", "consumers", "store"), [(2, 50, True), (10, 10, False)])
def test_100_waiting_consumers_of_workers_cost_under_2_percent_of_a_core(
    tmp_path: Path, processes: int, consumers: int, *, store: bool
) -> None:
    seen: list[float] = []
    while len(seen) < 2 and min(seen, default=100) >= 2:
        folder = tmp_path / str(len(seen))
        folder.mkdir()
        found = crowd.measure(folder, processes, consumers, each=2, idle_seconds=8, store=store)
        seen.append(found.idle_percent)
    assert min(seen) < 2, seen
