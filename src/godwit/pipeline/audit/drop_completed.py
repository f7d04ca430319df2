"""Drops completed copies from a journal before it is audited; runs in Spark's Python workers.

Nearly every copy arrives, is delivered and ends, each step from a state that allows it, and all within the rows of one
task. Such a history has nothing open and nothing wrong, so its rows are dropped. These rows stay:

* histories that began or end elsewhere, or have a step too many; histories with an ordering key, because the order of a
  key needs all of them; replays; rows that are no step of a copy (creations and removals of groups);
* of the copies that completed, for every lane the one that was ready last, the one delivered last before that, and the
  one delivered last: waiting copies are compared with them;
* histories with a purge or a removal between their steps, when those are known;
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
from godwit.pipeline.audit.interruptions import Interruptions, next_after
from godwit.pipeline.audit.row_columns import coded_texts, codes, looked_up, milliseconds, numbers

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

READ: Final = (*COLUMNS, "body")
FACTS: Final = ("n", "first_seq", "last_seq", "seq_sum", "last_at_ms", "first_at_ms", "births")
"""Of rows without a hole: their number, first and last seq, the sum of their seqs, when the last and the first one was
written, and how many copies arrived."""
ARRIVED: Final = ("run_seq", "lowest", "highest", "arrivals")
"""The copies of a group that arrived in rows without a hole: the first seq of those rows, the lowest and the highest
publish_seq, and a bit for each from the lowest on: set if it arrived."""
NO_INTERRUPTIONS: Final = Interruptions({}, {}, {})
Place = tuple[str, str, str]
"""Shard, epoch and group."""
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
_UNBORN, _WAITING, _ENDED = (_PHASES.index(phase) for phase in (Phase.UNBORN, Phase.WAITING, Phase.ENDED))
_BIRTHS: Final = pa.array([event.value for event in BIRTHS])
_DELIVER, _RENEW = _NAMES.index(CopyStep.DELIVER), _NAMES.index(CopyStep.RENEW)
_NUMBER_BITS: Final = 44
"""A publish_seq of more bits is skipped; no queue has that many messages."""


def schema() -> StructType:
    """Return the columns of the remaining rows; each column is null in some of them."""
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    from godwit.pipeline.source.schema import columns

    known = [StructField(field.name, field.dataType) for field in columns(*READ)]
    facts = [StructField(name, LongType()) for name in (*FACTS, *ARRIVED[:-1])]
    return StructType([*known, *facts, StructField(ARRIVED[-1], BinaryType())])


def drop_completed(
    batches: Iterable[pa.RecordBatch], removals: Interruptions = NO_INTERRUPTIONS
) -> Iterator[pa.RecordBatch]:
    """Yield rows (`READ`) without those of completed copies."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        gathered.append(batch)
        if sum(map(len, gathered)) >= MOST_ROWS:
            yield from _without_completed(pa.Table.from_batches(gathered), removals)
            gathered = []
    if gathered:
        yield from _without_completed(pa.Table.from_batches(gathered), removals)


def _without_completed(rows: pa.Table, removals: Interruptions) -> Iterator[pa.RecordBatch]:
    kept = rows.filter(pa.array(_CopyHistories(rows, removals).stay))
    runs = _runs(rows)
    whole = pa.concat_tables([kept, _facts(rows, runs), _arrived(rows, runs)], promote_options="default")
    yield from whole.combine_chunks().to_batches()


def _runs(rows: pa.Table) -> np.ndarray:
    """Return for each row the first seq of the rows without a hole that it belongs to, below zero without a shard."""
    places, seqs = codes(rows, "shard", "epoch"), numbers(rows["seq"], _NO_STEP)
    order = np.lexsort((seqs, places))
    sorted_seqs, sorted_places = seqs[order], places[order]
    begins = np.r_[True, (np.diff(sorted_places) != 0) | (np.diff(sorted_seqs) > 1)][: len(order)]
    runs = np.empty(len(rows), np.int64)
    runs[order] = sorted_seqs[begins][np.cumsum(begins) - 1]
    return runs


def _facts(rows: pa.Table, runs: np.ndarray) -> pa.Table:
    """Return what was read of each shard."""
    born = pc.cast(pc.is_in(rows["event"], _BIRTHS), pa.int64())
    seqs = rows.select(["shard", "epoch", "seq"]).append_column("at_ms", milliseconds(rows["at"]))
    seqs = seqs.append_column("run", pa.array(runs)).append_column("born", born)
    sums = [("seq", "count"), ("seq", "min"), ("seq", "max"), ("seq", "sum"), ("at_ms", "max"), ("at_ms", "min")]
    sums += [("born", "sum")]
    shards = seqs.group_by(["shard", "epoch", "run"], use_threads=False).aggregate(sums)
    named = zip(FACTS, (f"{column}_{how}" for column, how in sums), strict=True)
    columns = {"shard": shards["shard"], "epoch": shards["epoch"]}
    return pa.table(columns | {fact: pc.cast(shards[column], pa.int64()) for fact, column in named})


def _arrived(rows: pa.Table, runs: np.ndarray) -> pa.Table:
    """Return which copies arrived, by shard, group and run.

    The bits are null where numbers are too far apart or missing.
    """
    born = pc.is_in(rows["event"], _BIRTHS)
    arrivals, runs = rows.filter(born), runs[born.to_numpy()]
    keys = ("shard", "epoch", "group")
    columns: dict[str, list[Any]] = {name: [] for name in (*keys, *ARRIVED)}
    publish_seqs, coded = numbers(arrivals["publish_seq"], _NO_STEP), codes(arrivals, *keys)
    order = np.lexsort((runs, coded))
    ends = np.flatnonzero((np.diff(coded[order]) != 0) | (np.diff(runs[order]) != 0)) + 1
    for mine in np.split(order, ends) if len(order) else ():
        for name in keys:
            columns[name].append(arrivals[name][int(mine[0])].as_py())
        columns["run_seq"].append(int(runs[mine[0]]))
        columns["lowest"].append(int(publish_seqs[mine].min()))
        columns["highest"].append(int(publish_seqs[mine].max()))
        columns["arrivals"].append(_arrival_bits(publish_seqs[mine]) if coded[mine[0]] >= 0 else None)
    kinds = {**dict.fromkeys(keys, pa.string()), **dict.fromkeys(ARRIVED[:-1], pa.int64()), ARRIVED[-1]: pa.binary()}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})


def _arrival_bits(numbers: np.ndarray) -> bytes | None:
    lowest, width = int(numbers.min()), int(numbers.max() - numbers.min()) + 1
    if lowest < 0 or width > max(len(numbers) * _APART, _MARKS):
        return None
    marks = np.zeros(width, bool)
    marks[numbers - lowest] = True
    return np.packbits(marks).tobytes()


def arrivals_are_unique(arrived: Iterable[tuple[Place, int, bytes | None]], open_before: Mapping[Place, int]) -> bool:
    """Say whether no copy arrived twice, by the arrivals of tasks and the highest open copy of each group."""
    by_group: dict[Place, list[tuple[int, np.ndarray]]] = {}
    for place, lowest, arrivals in arrived:
        if arrivals is None or lowest <= open_before.get(place, _NO_STEP):
            return False
        marks = np.unpackbits(np.frombuffer(arrivals, np.uint8))
        by_group.setdefault(place, []).append((lowest, marks))
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

    def __init__(self, rows: pa.Table, removals: Interruptions) -> None:
        self.stay = np.ones(len(rows), bool)
        """The rows that an audit has to follow."""
        self._rows, self._removals = rows, removals
        steps, places = self._steps(), codes(rows, "shard", "epoch", "group")
        copies, seqs = numbers(rows["publish_seq"], _NO_STEP), numbers(rows["seq"], 0)
        step_rows = np.flatnonzero((steps != _NO_STEP) & (places >= 0) & (copies >= 0) & (copies < 1 << _NUMBER_BITS))
        if not len(step_rows):
            return
        named = places[step_rows] << _NUMBER_BITS | copies[step_rows]
        order = np.lexsort((seqs[step_rows], named))
        self._at, self._copies, self._steps_there = step_rows[order], named[order], steps[step_rows[order]]
        self._seqs = seqs
        self._drop(self._completed())

    def _steps(self) -> np.ndarray:
        coded = coded_texts(self._rows["event"])
        known = [_STEP_OF.get(name, _NO_STEP) for name in coded.dictionary.to_pylist()]
        return looked_up(coded, known, np.int8)

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
        plain = _MAY[steps, was] & self._droppable()[at] & ~self._interrupted(copies, after, at)
        completed: np.ndarray = copies[starts][np.logical_and.reduceat(plain, starts) & (after[ends] == _ENDED)]
        return completed

    def _interrupted(self, copies: np.ndarray, after: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Say after which steps a purge or a removal came that should have ended the copy before its next step."""
        if not self._removals:
            return np.zeros(len(at), bool)
        rows, seqs = self._rows.select(["shard", "epoch", "group"]).take(pa.array(at)), self._seqs[at]
        following = np.where(np.r_[copies[1:] == copies[:-1], False], np.r_[seqs[1:], 0], 0)
        purges = next_after(rows, seqs, self._removals.purges)
        removes = next_after(rows, seqs, self._removals.removes)
        purged: np.ndarray = (after == _WAITING) & (purges >= 0) & (purges < following)
        return purged | ((removes >= 0) & (removes < following))

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
        """Return for every lane the copies among these that say what others of it have overtaken, in order."""
        delivered = np.flatnonzero(out & (self._steps_there == _DELIVER))
        _, first = np.unique(self._copies[delivered], return_index=True)
        delivered = delivered[first]
        rows = self._rows.select(["at", "wait_ms", "lane"]).take(pa.array(self._at[delivered]))
        waited, lanes, at_ms = (
            numbers(column, _NO_STEP) for column in (rows["wait_ms"], rows["lane"], milliseconds(rows["at"]))
        )
        places = self._copies[delivered] >> _NUMBER_BITS
        order = np.lexsort((at_ms, at_ms - waited, lanes, places))
        order = order[waited[order] >= 0]
        lane = np.stack([places[order], lanes[order]])
        last = _last_of_each(lane)
        at_ms, ready = at_ms[order], (at_ms - waited)[order]
        # For each row the time at which the newest of its lane was ready, then the last delivery before that.
        newest = ready[last][np.cumsum(np.r_[False, last[:-1]])] if len(order) else ready
        by_time = np.lexsort((at_ms, lane[1], lane[0]))
        latest = by_time[_last_of_each(lane[:, by_time])]
        earlier = by_time[(at_ms < newest)[by_time]]
        before = earlier[_last_of_each(lane[:, earlier])]
        kept = np.unique(np.concatenate([np.flatnonzero(last), latest, before]))
        return np.unique(self._copies[delivered][order[kept]])


def _last_of_each(lanes: np.ndarray) -> np.ndarray:
    """Say which columns are the last before another lane begins."""
    last: np.ndarray = np.r_[(lanes[:, 1:] != lanes[:, :-1]).any(axis=0), True][: lanes.shape[1]]
    return last


def _among(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Say which values are among known ones, which are sorted."""
    if not len(known):
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    is_known: np.ndarray = known[places] == values
    return is_known
