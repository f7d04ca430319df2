"""Simulates a queue with several slots from the trace of a real one."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence


def waits(ready: Sequence[int], runs: Sequence[int], slots: int) -> list[int]:
    """Return how long each message waits when `slots` work in order of readiness."""
    free = [0] * slots
    heapq.heapify(free)
    waited = []
    for at, run in zip(ready, runs, strict=True):
        begin = max(at, free[0])
        heapq.heapreplace(free, begin + run)
        waited.append(begin - at)
    return waited


def most_overlapping(spans: Sequence[tuple[int, int]]) -> int:
    """Return the greatest number of overlapping spans; a span that ends as another begins does not overlap it."""
    changes = sorted([(begin, 1) for begin, _ in spans] + [(max(begin + 1, end), -1) for begin, end in spans])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return max(most, 1)


def percentile(values: Sequence[int], share: float) -> float:
    """Return the smallest value that is not exceeded by that share of the values."""
    ordered = sorted(values)
    return float(ordered[max(0, math.ceil(share * len(ordered)) - 1)])
