"""Drops completed copies from a journal before it is audited; runs in Spark's Python workers.

Nearly every copy arrives, is delivered and ends, each step from a state that allows it, and all within the rows of one
task. Such a history has nothing open and nothing wrong, so its rows are dropped. These rows stay:

* histories that began or end elsewhere, or have a step too many; histories with an ordering key, because the order of a
  key needs all of them; replays; rows that are no step of a copy (creations and removals of groups);
* of the copies that completed, for every lane the one that was ready last: waiting copies are compared with it;
* rows without an event that state what was read of each shard (`FACTS`) and which copies arrived (`ARRIVED`).

A copy that arrives a second time in another task could have two such histories. `arrivals_are_unique` checks that none
does; where it cannot tell, the journal has to be followed in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.core.journal.lifecycle import BIRTHS, CopyStep, Phase
from godwit.pipeline.audit.copy_lifecycle import AFTER, COLUMNS, MAY, STEPS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

READ: Final = (*COLUMNS, "epoch", "body")
FACTS: Final = ("n", "first_seq", "last_seq", "seq_sum", "last_at_ms")
"""The number of rows, their first and last seq, the sum of their seqs, and when the last one was written."""
ARRIVED: Final = ("lowest", "arrivals")
"""The lowest publish_seq of the copies of a group that arrived, and a bit for each from there on: set if it did."""
MOST_ROWS: Final = 1 << 18
_NO_STEP: Final = -1
_APART: Final = 64
_MARKS: Final = 1 << 20
_ALL_MARKS: Final = 1 << 24
"""How many numbers there may be for each used one, and in any case, of a task and of all tasks: with many groups the
numbers of a queue are divided among them."""
_NAMES: Final = tuple(STEPS)
_STEP_OF: Final = {event.value: place for place, name in enumerate(_NAMES) for event in STEPS[name]}
_PHASES: Final = tuple(Phase)
_AFTER: Final = np.array([_PHASES.index(AFTER[name]) for name in _NAMES], np.int8)
_MAY: Final = np.array([[phase in MAY.get(name, frozenset()) for phase in _PHASES] for name in _NAMES])
_UNBORN, _ENDED = _PHASES.index(Phase.UNBORN), _PHASES.index(Phase.ENDED)
_DELIVER, _RENEW = _NAMES.index(CopyStep.DELIVER), _NAMES.index(CopyStep.RENEW)
_NUMBER_BITS: Final = 44
"""A publish_seq of more bits is skipped; no queue has that many messages."""


def schema() -> StructType:
    """Return the columns of the remaining rows; each column is null in some of them."""
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    from godwit.pipeline.source.schema import columns

    known = [StructField(field.name, field.dataType) for field in columns(*READ)]
    facts = [StructField(name, LongType()) for name in (*FACTS, ARRIVED[0])]
    return StructType([*known, *facts, StructField(ARRIVED[1], BinaryType())])


def drop_completed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows (`READ`) without those of completed copies."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        gathered.append(batch)
        if sum(map(len, gathered)) >= MOST_ROWS:
            yield from _without_completed(pa.Table.from_batches(gathered))
            gathered = []
    if gathered:
        yield from _without_completed(pa.Table.from_batches(gathered))


def _without_completed(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    kept = rows.filter(pa.array(_CopyHistories(rows).stay))
    whole = pa.concat_tables([kept, _facts(rows), _arrived(rows)], promote_options="default")
    yield from whole.combine_chunks().to_batches()


def _facts(rows: pa.Table) -> pa.Table:
    """Return what was read of each shard."""
    seqs = rows.select(["shard", "epoch", "seq"]).append_column("at_ms", _ms(rows["at"]))
    sums = [("seq", "count"), ("seq", "min"), ("seq", "max"), ("seq", "sum"), ("at_ms", "max")]
    shards = seqs.group_by(["shard", "epoch"], use_threads=False).aggregate(sums)
    named = zip(FACTS, (f"{column}_{how}" for column, how in sums), strict=True)
    columns = {"shard": shards["shard"], "epoch": shards["epoch"]}
    return pa.table(columns | {fact: pc.cast(shards[column], pa.int64()) for fact, column in named})


def _arrived(rows: pa.Table) -> pa.Table:
    """Return which copies arrived, by shard and group.

    The bits are null where numbers are too far apart or missing.
    """
    arrivals = rows.filter(pc.is_in(rows["event"], pa.array([event.value for event in BIRTHS])))
    keys = ("shard", "epoch", "group")
    columns: dict[str, list[Any]] = {name: [] for name in (*keys, *ARRIVED)}
    numbers, codes = _numbers(arrivals["publish_seq"], _NO_STEP), _codes(arrivals, *keys)
    for code in np.unique(codes):
        in_group = np.flatnonzero(codes == code)
        for name in keys:
            columns[name].append(arrivals[name][int(in_group[0])].as_py())
        columns["lowest"].append(int(numbers[in_group].min()))
        columns["arrivals"].append(_arrival_bits(numbers[in_group]) if code >= 0 else None)
    kinds = {**dict.fromkeys(keys, pa.string()), "lowest": pa.int64(), "arrivals": pa.binary()}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})


def _arrival_bits(numbers: np.ndarray) -> bytes | None:
    lowest, width = int(numbers.min()), int(numbers.max() - numbers.min()) + 1
    if lowest < 0 or width > max(len(numbers) * _APART, _MARKS):
        return None
    marks = np.zeros(width, bool)
    marks[numbers - lowest] = True
    return np.packbits(marks).tobytes()


def arrivals_are_unique(
    arrived: Iterable[tuple[str, str, int, bytes | None]], open_before: Mapping[tuple[str, str], int]
) -> bool:
    """Say whether no copy arrived twice, by the arrivals of tasks and the highest open copy of each group."""
    by_group: dict[tuple[str, str], list[tuple[int, np.ndarray]]] = {}
    for shard, group, lowest, arrivals in arrived:
        if arrivals is None or lowest <= open_before.get((shard, group), _NO_STEP):
            return False
        marks = np.unpackbits(np.frombuffer(arrivals, np.uint8))
        by_group.setdefault((shard, group), []).append((lowest, marks))
    return not any(map(_overlap, by_group.values()))


def _overlap(sets: Sequence[tuple[int, np.ndarray]]) -> bool:
    """Say whether a number is in several of these sets, or they are too far apart to tell."""
    begin, end = min(lowest for lowest, _ in sets), max(lowest + len(marks) for lowest, marks in sets)
    if end - begin > max(_APART * sum(len(marks) for _, marks in sets), _ALL_MARKS):
        return True
    times = np.zeros(end - begin, np.uint16)
    for lowest, marks in sets:
        times[lowest - begin :][: len(marks)] += marks
    return bool((times > 1).any())


class _CopyHistories:
    """The histories of copies in a table, each a run of rows in their order."""

    def __init__(self, rows: pa.Table) -> None:
        self.stay = np.ones(len(rows), bool)
        """The rows that an audit has to follow."""
        self._rows = rows
        steps, places, numbers = self._steps(), _codes(rows, "shard", "group"), _numbers(rows["publish_seq"], _NO_STEP)
        step_rows = np.flatnonzero((steps != _NO_STEP) & (places >= 0) & (numbers >= 0) & (numbers < 1 << _NUMBER_BITS))
        if not len(step_rows):
            return
        copies = places[step_rows] << _NUMBER_BITS | numbers[step_rows]
        order = np.lexsort((_numbers(rows["seq"], 0)[step_rows], copies))
        self._at, self._copies, self._steps_there = step_rows[order], copies[order], steps[step_rows[order]]
        self._drop(self._completed())

    def _steps(self) -> np.ndarray:
        coded = _coded(self._rows["event"])
        known = [_STEP_OF.get(name, _NO_STEP) for name in coded.dictionary.to_pylist()]
        return _looked_up(coded, known, np.int8)

    def _completed(self) -> np.ndarray:
        """Return the copies, in order, whose whole history is here and valid."""
        real = self._steps_there != _RENEW  # which changes nothing, and is never held against a copy
        copies, steps, at = self._copies[real], self._steps_there[real], self._at[real]
        if not copies.size:
            return np.empty(0, np.int64)
        starts = np.flatnonzero(np.r_[True, copies[1:] != copies[:-1]])
        after = _AFTER[steps]
        was = np.r_[np.int8(_UNBORN), after[:-1]]
        was[starts] = _UNBORN
        ends = np.r_[starts[1:], len(copies)] - 1
        plain = _MAY[steps, was] & self._droppable()[at]
        completed: np.ndarray = copies[starts][np.logical_and.reduceat(plain, starts) & (after[ends] == _ENDED)]
        return completed

    def _droppable(self) -> np.ndarray:
        """Say of each row whether it allows its copy to be dropped."""
        keyed, replays = (pc.is_valid(self._rows[name]) for name in ("ordering_key", "former_seq"))
        plain: np.ndarray = ~pc.or_(keyed, replays).to_numpy()
        return plain

    def _drop(self, ended: np.ndarray) -> None:
        if not len(ended):
            return
        out = _among(self._copies, ended)
        out &= ~_among(self._copies, self._ready_last(out))
        self.stay[self._at[out]] = False

    def _ready_last(self, out: np.ndarray) -> np.ndarray:
        """Return for every lane the copy among these that was ready last, in order."""
        delivered = np.flatnonzero(out & (self._steps_there == _DELIVER))
        _, first = np.unique(self._copies[delivered], return_index=True)
        delivered = delivered[first]
        rows = self._rows.select(["at", "wait_ms", "lane"]).take(pa.array(self._at[delivered]))
        waited, lanes, at_ms = (
            _numbers(column, _NO_STEP) for column in (rows["wait_ms"], rows["lane"], _ms(rows["at"]))
        )
        places = self._copies[delivered] >> _NUMBER_BITS
        order = np.lexsort((at_ms, at_ms - waited, lanes, places))
        order = order[waited[order] >= 0]
        lane = np.stack([places[order], lanes[order]])
        last = np.r_[(lane[:, 1:] != lane[:, :-1]).any(axis=0), True][: len(order)]
        return np.sort(self._copies[delivered][order[last]])


def _codes(rows: pa.Table, *names: str) -> np.ndarray:
    """Return a number for each row's values of some text columns, below zero where one is missing."""
    codes = np.zeros(len(rows), np.int64)
    for name in names:
        coded = _coded(rows[name])
        numbers = _looked_up(coded, list(range(len(coded.dictionary))), np.int64)
        codes = np.where((codes < 0) | (numbers < 0), _NO_STEP, codes * len(coded.dictionary) + numbers)
    return codes


def _among(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Say which values are among known ones, which are sorted."""
    if not len(known):
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    is_known: np.ndarray = known[places] == values
    return is_known


def _ms(instants: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(pc.cast(instants, pa.timestamp("ms", "UTC"), safe=False), pa.int64())


def _coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    return pc.dictionary_encode(column).combine_chunks()


def _looked_up(coded: pa.DictionaryArray, values: list[int], kind: type[np.generic]) -> np.ndarray:
    """Return a number for every text, below zero where there is none."""
    indices = pc.fill_null(coded.indices, len(values)).to_numpy(zero_copy_only=False)
    numbers: np.ndarray = np.array([*values, _NO_STEP], kind)[indices]
    return numbers


def _numbers(column: pa.ChunkedArray | pa.Array, otherwise: int) -> np.ndarray:
    """Return a column's numbers, with `otherwise` where one is missing."""
    numbers: np.ndarray = pc.fill_null(column.cast(pa.int64()), otherwise).to_numpy()
    return numbers
