"""A queue with several slots, run again from its trace."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence


def waits(ready: Sequence[int], runs: Sequence[int], slots: int) -> list[int]:
    """Return how long each message waits when `slots` are worked off in order of readiness."""
    free = [0] * slots
    heapq.heapify(free)
    found = []
    for at, run in zip(ready, runs, strict=True):
        begin = max(at, free[0])
        heapq.heapreplace(free, begin + run)
        found.append(begin - at)
    return found


def most_overlapping(spans: Sequence[tuple[int, int]]) -> int:
    """Return the most spans that overlap; one that ends as another begins does not."""
    changes = sorted([(begin, 1) for begin, _ in spans] + [(max(begin + 1, end), -1) for begin, end in spans])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return max(most, 1)


def percentile(values: Sequence[int], share: float) -> float:
    """Return the smallest value that so large a share of the values does not exceed."""
    ordered = sorted(values)
    return float(ordered[max(0, math.ceil(share * len(ordered)) - 1)])
