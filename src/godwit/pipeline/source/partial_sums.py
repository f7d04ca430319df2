"""Adds up journals in the process that reads them: from chunks to partial sums, without rows in between.

The rows of a chunk share queue, group, event and time, so a chunk is one addition; only durations are read value by
value. The result has a row per minute, group, event and histogram bucket: the sums that `transforms.analytics.partials`
makes of rows, split differently.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.core.errors import JournalDamaged
from godwit.core.journal.lifecycle import ARRIVALS
from godwit.core.journal.vocabulary import LAYOUTS, Event
from godwit.pipeline.source.row_decoder import decode_rows
from godwit.pipeline.source.schema import arrow_schema, partials_schema
from godwit.pipeline.transforms.analytics import COUNTED, DURATIONS, GAMMA, MINUTE_MS, NOTHING

_COPY: Final = {event.value: LAYOUTS[event].index("copy") for event in ARRIVALS}
_TIMED: Final = {event.value: LAYOUTS[event].index(name) for event, (_, name) in DURATIONS.items()}
_METRICS: Final = {event.value: metric for event, (metric, _) in DURATIONS.items()}
_NONE: Final = np.zeros(0, np.int64)


class PartialSums:
    """Adds up chunks of one shard; yields one batch at the end."""

    def __init__(self, shard: str) -> None:
        self._shard = shard
        self._sums: dict[tuple[Any, ...], _EventSum] = {}

    def add(self, chunks: Sequence[bytes], after: int, until: int) -> int:
        """Add the rows of chunks after `after` and up to `until`; return the seq of the last chunk's last row."""
        for chunk in chunks:
            after = max(after, self._add(chunk, after, until))
        return after

    def _add(self, chunk: bytes, after: int, until: int) -> int:
        decoded, first, rows = decode_rows(chunk, self._shard, after, until)
        if rows:
            key = (decoded.epoch, decoded.queue, decoded.at // MINUTE_MS, decoded.group, decoded.event)
            event_sum = self._sums.get(key)
            if event_sum is None:
                event_sum = self._sums[key] = _EventSum(first)
            event_sum.add(decoded.event, first, decoded.at, decoded.depth or 0, rows)
        return decoded.first_seq + len(decoded.rows) - 1

    def complete(self) -> Iterator[pa.RecordBatch]:
        """Yield nothing: further rows may belong to a minute that is there already."""
        return iter(())

    def remaining(self) -> Iterator[pa.RecordBatch]:
        """Yield the partial sums."""
        if self._sums:
            try:
                yield pa.RecordBatch.from_arrays(self._arrays(), schema=arrow_schema(partials_schema()))
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise JournalDamaged(
                    self._shard, min(event_sum.first for event_sum in self._sums.values()), str(error)
                ) from error
            self._sums = {}

    def _arrays(self) -> list[pa.Array]:
        sums, parts = list(self._sums.values()), [event_sum.parts() for event_sum in self._sums.values()]
        epochs, queues, minutes, groups, events = zip(*self._sums, strict=True)
        lengths = [len(buckets) for buckets, _, _ in parts]
        places = np.repeat(np.arange(len(sums)), lengths)
        buckets, n, values = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        begins = np.cumsum(lengths) - lengths

        def each(per_sum: Sequence[Any], kind: pa.DataType) -> pa.Array:
            return pa.array(per_sum, kind).take(pa.array(places))

        def once(per_sum: list[int]) -> pa.Array:
            """Put a sum's own total into the first of its rows, zero into the others."""
            column = np.zeros(len(places), np.int64)
            column[begins] = per_sum
            return pa.array(column)

        def where(wanted: Sequence[Event]) -> pa.Array:
            return pa.array(n * np.isin(events, [event.value for event in wanted])[places])

        untimed = buckets == _UNTIMED
        metrics = each([_METRICS.get(event) for event in events], pa.string())
        return [
            each([self._shard] * len(sums), pa.string()),
            each(epochs, pa.string()),
            each(queues, pa.string()),
            each([minute * MINUTE_MS for minute in minutes], pa.int64()),
            each(groups, pa.string()),
            pc.if_else(pa.array(untimed), pa.scalar(None, pa.string()), metrics),
            pa.array(buckets.astype(np.int32), mask=untimed),
            pa.array(n),
            each([event_sum.first for event_sum in sums], pa.int64()),
            each([event_sum.last for event_sum in sums], pa.int64()),
            once([event_sum.seq_sum for event_sum in sums]),
            each([event_sum.last_at for event_sum in sums], pa.int64()),
            where(ARRIVALS),
            once([event_sum.originals for event_sum in sums]),
            *(where([event]) for event in COUNTED.values()),
            pa.array(values),
            each([event_sum.peak for event_sum in sums], pa.int64()),
        ]


_UNTIMED: Final = NOTHING - 1
"""Stands for "no bucket" until the column is made."""


class _EventSum:
    """The totals of one event in one minute of a group."""

    __slots__ = ("first", "last", "last_at", "n", "originals", "peak", "seq_sum", "values")

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = self.last_at = self.n = self.originals = self.peak = self.seq_sum = 0
        self.values: list[int | None] = []

    def add(self, event: str, first: int, at: int, depth: int, rows: list[tuple[Any, ...]]) -> None:
        n = len(rows)
        last = first + n - 1
        self.n += n
        self.seq_sum += n * (first + last) // 2
        self.first, self.last = min(self.first, first), max(self.last, last)
        self.last_at, self.peak = max(self.last_at, at), max(self.peak, depth)
        if (field := _TIMED.get(event)) is not None:
            self.values += _column(rows, field)
        elif (field := _COPY.get(event)) is not None:
            self.originals += _column(rows, field).count(0)

    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return buckets with their numbers of rows and sums of durations; rows without a duration come first."""
        durations = pa.array(self.values, pa.int64()).drop_null()
        timed, n, sums = _histogram(np.sort(durations.to_numpy())) if len(durations) else (_NONE, _NONE, _NONE)
        untimed = self.n - len(durations)
        if not untimed:
            return timed, n, sums
        return np.append(_UNTIMED, timed), np.append(untimed, n), np.append(0, sums)


def _histogram(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the buckets of sorted values, how many values are in each, and their sums."""
    numbers = np.where(
        values < 1, NOTHING, np.ceil(np.log(np.maximum(values, 1).astype(np.float64)) / math.log(GAMMA))
    ).astype(np.int64)
    buckets, begins, n = np.unique(numbers, return_index=True, return_counts=True)
    return buckets, n, np.add.reduceat(values, begins)


def _column(rows: list[tuple[Any, ...]], field: int) -> list[Any]:
    try:
        return [row[field] for row in rows]
    except IndexError:
        return [row[field] if field < len(row) else None for row in rows]  # of an older version
