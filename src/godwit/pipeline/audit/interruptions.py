"""Interruptions of copies: purges and removals, which name no copy, and gaps, where rows of a journal are missing.

Which interruption comes next for a step of a copy is found by binary search in Spark's Python workers: a
join would multiply every copy by every purge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa

from godwit.core.journal.lifecycle import CopyStep, events_of
from godwit.core.journal.vocabulary import Event
from godwit.pipeline.audit.row_columns import codes, numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Shard = tuple[str, str]
"""Shard and epoch."""
PLACE: Final = ("shard", "epoch", "group")
PURGES: Final = frozenset(events_of(CopyStep.PURGE))
_SEQ_BITS: Final = 42
_NONE: Final = -1


class GroupRemoval(msgspec.Struct, frozen=True):
    """A purge or removal, of one group or (None) of all groups of a queue."""

    shard: str
    epoch: str
    seq: int
    group: str | None
    event: Event


class Gap(msgspec.Struct, frozen=True):
    """Rows of a journal that are missing: `first` to `last`."""

    shard: str
    epoch: str
    first: int
    last: int


class Interruptions(msgspec.Struct, frozen=True):
    """What happened to many copies at once, by shard and group; `None` stands for all groups."""

    purges: Mapping[Shard, Mapping[str | None, list[int]]]
    removes: Mapping[Shard, Mapping[str | None, list[int]]]
    gaps: Mapping[Shard, Mapping[str | None, list[int]]]

    def __bool__(self) -> bool:
        """Say whether there is any."""
        return bool(self.purges or self.removes or self.gaps)


def interruptions_of(removals: Iterable[GroupRemoval], gaps: Iterable[Gap]) -> Interruptions:
    """Put purges, removals and gaps together."""
    removed = list(removals)
    return Interruptions(
        purges=_by_place((one.shard, one.epoch, one.group, one.seq) for one in removed if one.event in PURGES),
        removes=_by_place((one.shard, one.epoch, one.group, one.seq) for one in removed if one.event not in PURGES),
        gaps=_by_place((gap.shard, gap.epoch, None, gap.last) for gap in gaps),
    )


def _by_place(found: Iterable[tuple[str, str, str | None, int]]) -> dict[Shard, dict[str | None, list[int]]]:
    places: dict[Shard, dict[str | None, list[int]]] = {}
    for shard, epoch, group, seq in found:
        places.setdefault((shard, epoch), {}).setdefault(group, []).append(seq)
    return places


def with_interruptions(events: DataFrame, interruptions: Interruptions) -> DataFrame:
    """Add to each event of a copy the next purge, removal and gap of its group: the seq of each, or null."""
    from pyspark.sql.types import LongType, StructField, StructType

    names = ("purge_seq", "remove_seq", "gap_seq")
    schema = StructType([*events.schema.fields, *(StructField(name, LongType()) for name in names)])
    kinds = (interruptions.purges, interruptions.removes, interruptions.gaps)

    def add(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            seqs = numbers(table["seq"], 0)
            for name, kind in zip(names, kinds, strict=True):
                following = next_after(table, seqs, kind)
                table = table.append_column(name, pa.array(following, pa.int64(), mask=following == _NONE))
            yield from table.combine_chunks().to_batches()

    return events.mapInArrow(add, schema)


def next_after(
    rows: pa.Table, seqs: np.ndarray, places: Mapping[Shard, Mapping[str | None, Sequence[int]]]
) -> np.ndarray:
    """Return for each row the lowest seq of its shard and group beyond its own, or -1."""
    if not places:
        return np.full(len(rows), _NONE, np.int64)
    coded = codes(rows, *PLACE)
    distinct, first = np.unique(coded, return_index=True)
    found = [np.empty(0, np.int64)]
    for code, row in zip(distinct.tolist(), first.tolist(), strict=True):
        shard, epoch, group = (rows[name][row].as_py() for name in PLACE)
        in_shard = places.get((shard, epoch), {})
        mine = sorted({*in_shard.get(None, ()), *in_shard.get(group, ())})
        if code != _NONE and mine:
            found.append((code << _SEQ_BITS) + np.array(mine, np.int64))
    known = np.concatenate(found)
    if not len(known):
        return np.full(len(rows), _NONE, np.int64)
    at = np.searchsorted(known, (coded << _SEQ_BITS) + seqs, side="right")
    following = known[np.minimum(at, len(known) - 1)]
    is_mine = (at < len(known)) & (following >> _SEQ_BITS == coded) & (coded != _NONE)
    return np.where(is_mine, following & ((1 << _SEQ_BITS) - 1), _NONE)
