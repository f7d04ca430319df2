"""Decodes chunks to Arrow by column, without a Python object per value.

Chunks are ordered by event, so that rows of one layout are adjacent; `msgpack_values` finds their values offset by
offset, numpy copies numbers and Arrow copies texts. One batch holds all events of its chunks, those of one event side
by side; rows of a table have no order anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.core.journal.chunks import FIELDS_BEHIND_ROWS, FIELDS_TO_ROWS, without_ending
from godwit.pipeline.source.msgpack_values import BYTES, FEW, TEXT, ByteOffsets, Flags, MsgpackValues, Unexpected
from godwit.pipeline.source.row_decoder import layout_of, repeat_value

_MICROSECONDS: Final = 1_000
_LATEST_MS: Final = (2**63 - 1) // _MICROSECONDS
_LARGEST: Final = 2**31 - 1

_Piece = tuple[int, ByteOffsets, ByteOffsets]
"""A field of the rows of one event: the first of those rows, where the field begins in each, and where it ends."""


def batch_of(chunks: Sequence[bytes], schema: pa.Schema, shard: str, after: int, until: int) -> pa.RecordBatch:
    """Return the rows of chunks after `after` and up to `until` as columns.

    Raises `Unexpected` when the chunks hold something that only `row_decoder` can decode.
    """
    try:
        plain, *endings = zip(*map(without_ending, chunks), strict=True)
    except msgspec.DecodeError as error:
        raise Unexpected from error
    headers = _Headers(plain, dict(zip(FIELDS_BEHIND_ROWS, endings, strict=True)))
    rows = _Rows(plain, headers)
    whole = pa.RecordBatch.from_arrays([_column(field, headers, rows, shard) for field in schema], schema=schema)
    if rows.seq.min() > after and rows.seq.max() <= until:
        return whole
    return whole.filter(pa.array((rows.seq > after) & (rows.seq <= until)))


def _column(field: pa.Field, headers: _Headers, rows: _Rows, shard: str) -> pa.Array:
    name, type_ = field.name, field.type
    if name in rows.fields:
        pieces = rows.fields[name]
        return rows.numbers(pieces, type_) if _is_number(type_) else rows.texts(pieces, type_)
    if name == "shard":
        return repeat_value(shard, type_, rows.count)
    if name == "seq":
        return pa.array(rows.seq)
    if name in headers.places:
        return headers.spread(name, type_, rows)
    if name in headers.endings:
        return headers.spread_ending(name, type_, rows)
    return repeat_value(None, type_, rows.count)


class _Headers:
    """The headers of chunks as columns."""

    def __init__(self, chunks: Sequence[bytes], endings: Mapping[str, Sequence[str | None]]) -> None:
        self._packed = MsgpackValues(chunks)
        self.endings = endings
        """What followed the rows of each chunk, by field."""
        sizes = np.fromiter(map(len, chunks), np.int64, len(chunks))
        self.begins = np.cumsum(sizes) - sizes
        if not (self._packed.first(self.begins) == FEW + len(FIELDS_TO_ROWS)).all():
            raise Unexpected
        self.places: dict[str, ByteOffsets] = {}
        offsets = self.begins + 1
        for name in FIELDS_TO_ROWS:
            self.places[name] = offsets
            offsets = self._packed.ends_of(offsets)
        self.counts, self.inside = self._packed.lengths(self.places.pop("rows"))
        if not self.counts.all() or (self.counts > sizes).any():
            raise Unexpected
        self.values, _ = self._packed.lengths(self.inside)
        """How many values the first row of a chunk has; reading the other rows proves that they have as many."""

    def numbers(self, name: str) -> ByteOffsets:
        """Return a number of each chunk; refuse a null."""
        numbers, there = self._packed.numbers(self.places[name])
        if there is not None:
            raise Unexpected
        return numbers

    def texts(self, name: str, type_: pa.DataType) -> pa.Array:
        """Return a text of each chunk."""
        begins, there = self._packed.texts(self.places[name], TEXT)
        return _texts(self._packed, begins, self._packed.ends_of(self.places[name]), there, type_)

    def spread(self, name: str, type_: pa.DataType, rows: _Rows) -> pa.Array:
        """Return a field of each row's chunk."""
        chunk = rows.chunk
        if _is_number(type_):
            values, there = self._packed.numbers(self.places[name])
            return _numbers(values[chunk], None if there is None else there[chunk], type_)
        return _spread(self.texts(name, type_), type_, rows)

    def spread_ending(self, name: str, type_: pa.DataType, rows: _Rows) -> pa.Array:
        """Return a field of each row's chunk that follows the rows there."""
        return _spread(pa.array(self.endings[name], type_), type_, rows)


def _spread(texts: pa.Array, type_: pa.DataType, rows: _Rows) -> pa.Array:
    """Return a text of each chunk, repeated for each of its rows."""
    if texts[0] == texts[-1] and len(texts.unique()) == 1:
        return repeat_value(texts[0].as_py(), type_, rows.count)
    runs = pa.RunEndEncodedArray.from_arrays(rows.ends, texts.take(rows.order))
    return pc.run_end_decode(runs)


class _Rows:
    """The rows of chunks, those of one event side by side."""

    def __init__(self, chunks: Sequence[bytes], headers: _Headers) -> None:
        events = headers.texts("event", pa.string()).dictionary_encode()
        kinds = np.asarray(events.indices) * 65_536 + headers.values
        order = np.argsort(kinds, kind="stable")
        inside = (headers.inside - headers.begins)[order].tolist()
        pieces = [chunks[chunk][begin:] for chunk, begin in zip(order.tolist(), inside, strict=True)]
        self._packed = MsgpackValues(pieces)
        counts = headers.counts[order]
        self.count = int(counts.sum())
        self.chunk = np.repeat(order, counts)
        self.order, self.ends = pa.array(order), pa.array(np.cumsum(counts))
        firsts = np.cumsum(counts) - counts
        self.seq = np.repeat(headers.numbers("first_seq")[order] - firsts, counts) + np.arange(self.count)
        self.fields: dict[str, list[_Piece]] = {}
        sizes = np.fromiter(map(len, pieces), np.int64, len(pieces))
        ends = np.cumsum(sizes)
        edges = [0, *(np.flatnonzero(np.diff(kinds[order])) + 1).tolist(), len(order)]
        for first, last in pairwise(edges):
            begin, end = int(ends[first - 1]) if first else 0, int(ends[last - 1])
            chunk = order[first]
            value_offsets = self._packed.rows(begin, end, int(headers.values[chunk]), int(counts[first:last].sum()))
            begun = value_offsets[0][firsts[first:last] - firsts[first]] - (value_offsets[0][0] - begin)
            if not np.array_equal(begun, (ends - sizes)[first:last]):
                raise Unexpected  # a chunk has more or fewer rows than it says
            layout = layout_of(events[int(chunk)].as_py())
            for name, piece in zip(layout, pairwise(value_offsets), strict=False):
                self.fields.setdefault(name, []).append((int(firsts[first]), *piece))

    def numbers(self, pieces: list[_Piece], type_: pa.DataType) -> pa.Array:
        """Return a column of numbers."""
        if len(pieces) == 1 and len(pieces[0][1]) == self.count:
            return _numbers(*self._packed.numbers(pieces[0][1]), type_)
        values, there = np.zeros(self.count, np.int64), np.zeros(self.count, np.bool_)
        for first, places, _ in pieces:
            stretch = slice(first, first + len(places))
            values[stretch], some = self._packed.numbers(places)
            there[stretch] = True if some is None else some
        return _numbers(values, there, type_)

    def texts(self, pieces: list[_Piece], type_: pa.DataType) -> pa.Array:
        """Return a column of texts or bytes."""
        kind = BYTES if pa.types.is_binary(type_) else TEXT
        begins, ends = np.zeros((2, self.count), np.int64)
        there = np.zeros(self.count, np.bool_)
        for first, places, behind in pieces:
            stretch = slice(first, first + len(places))
            begins[stretch], some = self._packed.texts(places, kind)
            ends[stretch], there[stretch] = behind, True if some is None else some
        return _texts(self._packed, begins, ends, there, type_)


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_timestamp(type_))


def _numbers(values: ByteOffsets, there: Flags | None, type_: pa.DataType) -> pa.Array:
    size = len(values)
    if there is not None:
        known = int(np.count_nonzero(there))
        if not known:
            return repeat_value(None, type_, size)
        if known < size:
            values = np.where(there, values, 0)
    if pa.types.is_timestamp(type_):
        if np.abs(values).max(initial=0) > _LATEST_MS:
            raise Unexpected
        values = values * _MICROSECONDS
    elif type_ == pa.int32():
        if values.max(initial=0) > _LARGEST or values.min(initial=0) < -_LARGEST - 1:
            raise Unexpected
        values = values.astype(np.int32)
    return pa.Array.from_buffers(type_, size, [*_known(there), pa.py_buffer(values)])


def _texts(
    packed: MsgpackValues, begins: ByteOffsets, ends: ByteOffsets, there: Flags | None, type_: pa.DataType
) -> pa.Array:
    """Copy texts out of the bytes: Arrow sees texts and the bytes between them in turns, and takes every other one."""
    size = len(begins)
    if there is not None and not there.any():
        return repeat_value(None, type_, size)
    if packed.size > _LARGEST:
        raise Unexpected
    offsets = np.empty(2 * size + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = begins, ends
    offsets[-1] = packed.size
    turns = pa.Array.from_buffers(type_, 2 * size, [None, pa.py_buffer(offsets), pa.py_buffer(packed.data)])
    taken = turns.take(_every_other(size))
    try:
        taken.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Unexpected from error
    return pa.Array.from_buffers(type_, size, [*_known(there), *taken.buffers()[1:]])


def _known(there: Flags | None) -> list[Any]:
    return [None if there is None or there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))]


@lru_cache(maxsize=4)
def _every_other(size: int) -> pa.Array:
    return pa.array(np.arange(0, 2 * size, 2))
