"""Sums over the last few minutes in a ring of buckets: adding costs the same at any rate."""

from __future__ import annotations

import time
from array import array
from datetime import timedelta
from typing import Final

from godwit.core.clock import Clock, milliseconds
from godwit.core.settings import DEFAULTS

WINDOW: Final = DEFAULTS.monitoring.alert_window
BUCKETS: Final = 60


class MonotonicClock:
    """Time that passes evenly whatever happens to the wall clock; its zero means nothing."""

    def now_ms(self) -> int:
        """Return the milliseconds since some instant."""
        return time.monotonic_ns() // 1_000_000


MONOTONIC_CLOCK: Final = MonotonicClock()


class Window:
    """Several sums side by side, each bucket a row of `sums`; a bucket is forgotten as a whole.

    `since_ms` is when counting began: a window made for a name that first came up later covers that time as well.
    """

    def __init__(self, *, columns: int, clock: Clock, since_ms: int, length: timedelta = WINDOW) -> None:
        self._clock, self._columns, self._since_ms = clock, columns, since_ms
        self._bucket_ms = max(1, milliseconds(length) // BUCKETS)
        self._newest = clock.now_ms() // self._bucket_ms
        self.sums = array("d", bytes(8 * columns * BUCKETS))

    def row(self, at_ms: int | None = None) -> int:
        """Return where in `sums` the present bucket begins, or that of an instant after all that were added before."""
        bucket = (self._clock.now_ms() if at_ms is None else at_ms) // self._bucket_ms
        if bucket > self._newest:  # a clock set back adds to the newest bucket
            self._forget_until(bucket)
        return self._newest % BUCKETS * self._columns

    def totals(self) -> list[float]:
        """Return the sums over the window."""
        self.row()
        return [sum(self.sums[column :: self._columns]) for column in range(self._columns)]

    def seconds(self) -> float:
        """Return how much time the sums cover: less than the window while it is young, never less than a second."""
        self.row()
        oldest_ms = (self._newest - BUCKETS + 1) * self._bucket_ms
        return max(1.0, (self._clock.now_ms() - max(oldest_ms, self._since_ms)) / 1000)

    def _forget_until(self, bucket: int) -> None:
        empty = array("d", bytes(8 * self._columns))
        for passed in range(max(self._newest + 1, bucket - BUCKETS + 1), bucket + 1):
            begin = passed % BUCKETS * self._columns
            self.sums[begin : begin + self._columns] = empty
        self._newest = bucket
