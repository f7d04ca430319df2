"""Counter, gauge and histogram: plain dictionaries from label values to numbers.

They take no lock; the collector that owns them does. A family holds at most `SERIES_LIMIT` sets of label values: what
comes beyond is counted under `other`, so that a name made up per message cannot fill the memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import StrEnum
from math import inf, isfinite
from typing import Final

import msgspec

SERIES_LIMIT: Final = 2_000
OTHER: Final = "other"

SHORT_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
RUN_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
WAIT_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0)

# From this many sorted values on, looking up each bound is cheaper than looking up each value.
_FEW: Final = 16

Labels = tuple[str, ...]


class MetricKind(StrEnum):
    """What Prometheus calls the sorts of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(StrEnum):
    """How the same series of several processes becomes one: parts add up, views of one truth do not."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"


class Numbers:
    """A counter or a gauge: one number per set of label values."""

    def __init__(self, name: str, kind: MetricKind, labels: Labels, meaning: str, merge: Merge = Merge.SUM) -> None:
        self.name, self.kind, self.labels, self.meaning, self.merge = name, kind, labels, meaning, merge
        self.series: dict[Labels, float] = {}

    def add(self, labels: Labels, amount: float) -> None:
        """Count `amount` more."""
        series = self.series
        if labels in series:
            series[labels] += amount
        else:
            labels = self._admitted(labels)
            series[labels] = series.get(labels, 0) + amount

    def put(self, labels: Labels, value: float) -> None:
        """Replace the number; a series beyond the limit is left out, because a mixed gauge would say nothing."""
        if labels in self.series or len(self.series) < SERIES_LIMIT:
            self.series[labels] = value

    def absorb(self, labels: Labels, value: float) -> None:
        """Join the number another process has for a series."""
        if self.merge is Merge.SUM:
            self.add(labels, value)
        else:
            choose = max if self.merge is Merge.MAX else min
            self.put(labels, choose(value, self.series.get(labels, value)))

    def drop(self, first: Labels) -> None:
        """Forget the series whose label values begin with `first`."""
        for labels in [labels for labels in self.series if labels[: len(first)] == first]:
            del self.series[labels]

    def _admitted(self, labels: Labels) -> Labels:
        return labels if len(self.series) < SERIES_LIMIT else (OTHER,) * len(self.labels)


class Spread(msgspec.Struct):
    """How observed values fall into buckets; the last count is of those above every bound."""

    counts: list[int]
    total: float = 0.0

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self.counts)


class Histogram:
    """Observed values in fixed buckets, per set of label values."""

    kind: Final = MetricKind.HISTOGRAM

    def __init__(self, name: str, labels: Labels, meaning: str, bounds: tuple[float, ...]) -> None:
        self.name, self.labels, self.meaning, self.bounds = name, labels, meaning, bounds
        self.series: dict[Labels, Spread] = {}

    def observe(self, labels: Labels, values: Sequence[float]) -> None:
        """Take a batch of values; what is no number is left out, what is below zero (clocks differ) counts as zero."""
        if not values:
            return
        if len(values) == 1 and 0 <= values[0] < inf:
            spread = self.series.get(labels) or self._admitted(labels)
            spread.total += values[0]
            spread.counts[bisect_left(self.bounds, values[0])] += 1
            return
        values = sorted(values)
        total = sum(values)
        if not isfinite(total) or values[0] < 0:
            values = sorted(max(value, 0.0) for value in values if isfinite(value))
            total = sum(values)
        spread = self.series.get(labels) or self._admitted(labels)
        spread.total += total
        counts, bounds = spread.counts, self.bounds
        if len(values) < _FEW:
            for value in values:
                counts[bisect_left(bounds, value)] += 1
            return
        begin = 0
        for index, bound in enumerate(bounds):
            end = bisect_right(values, bound, begin)
            counts[index] += end - begin
            begin = end
        counts[-1] += len(values) - begin

    def absorb(self, labels: Labels, other: Spread) -> None:
        """Join what another process observed; another version's buckets do not fit and are left out."""
        spread = self.series.get(labels) or self._admitted(labels)
        if len(other.counts) == len(spread.counts):
            spread.counts = [mine + theirs for mine, theirs in zip(spread.counts, other.counts, strict=True)]
            spread.total += other.total

    def drop(self, first: Labels) -> None:
        """Forget the series whose label values begin with `first`."""
        for labels in [labels for labels in self.series if labels[: len(first)] == first]:
            del self.series[labels]

    def _admitted(self, labels: Labels) -> Spread:
        if len(self.series) >= SERIES_LIMIT:
            labels = (OTHER,) * len(self.labels)
        return self.series.setdefault(labels, Spread([0] * (len(self.bounds) + 1)))


Family = Numbers | Histogram
