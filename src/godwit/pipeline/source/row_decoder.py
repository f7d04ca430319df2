"""Decodes chunks to Arrow by row, for chunks that `column_decoder` cannot decode.

Rows of one event share a layout, so they are gathered by event and transposed as a whole: one `zip` and one Arrow array
per column for thousands of rows, instead of one dictionary per row. Arrow, not Python, repeats the fields of a chunk's
header. A batch therefore holds one event; rows of a table have no order anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from godwit.core.errors import JournalDamaged
from godwit.core.journal.chunks import ChunkOf
from godwit.core.journal.vocabulary import HEADER, LAYOUTS, Event

_KEPT_ROWS: Final = 65_536
_INTEGER: Final = pa.int64()
_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")
_NO_LAYOUT: Final[tuple[str, ...]] = ()


DecodedChunk = ChunkOf[str, list[tuple[Any, ...]]]
"""A chunk with decoded rows, whatever its event; rows are tuples, which cost less than lists."""

_decode = msgspec.msgpack.Decoder(DecodedChunk).decode
_count = msgspec.msgpack.Decoder(ChunkOf[str, list[msgspec.Raw]]).decode


def last_seq(chunk: bytes, shard: str, after: int) -> int:
    """Return the seq of a chunk's last row."""
    try:
        return _count(chunk).last_seq
    except msgspec.DecodeError as error:
        raise JournalDamaged(shard, after, str(error)) from error


def decode_rows(chunk: bytes, shard: str, after: int, until: int) -> tuple[DecodedChunk, int, list[tuple[Any, ...]]]:
    """Return a chunk, the seq of its first row after `after`, and its rows from there up to `until`."""
    try:
        decoded = _decode(chunk)
    except msgspec.DecodeError as error:
        raise JournalDamaged(shard, after, str(error)) from error
    rows, first = decoded.rows, decoded.first_seq
    if first <= after or first + len(rows) - 1 > until:
        rows = rows[max(0, after + 1 - first) : max(0, until + 1 - first)]
        first = max(first, after + 1)
    return decoded, first, rows


class RowDecoder:
    """Decodes chunks of one shard row by row, to batches of a schema's columns."""

    def __init__(self, schema: pa.Schema, shard: str) -> None:
        self._schema, self._shard = schema, shard

    def batches(self, chunks: Sequence[bytes], after: int, until: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of chunks after `after` and up to `until`."""
        gathered: dict[tuple[str, int], _Rows] = {}
        for chunk in chunks:
            decoded, first, rows = decode_rows(chunk, self._shard, after, until)
            if rows:
                key = (decoded.event, len(rows[0]))
                if key not in gathered:
                    gathered[key] = _Rows(decoded.event)
                gathered[key].rows += rows
                gathered[key].headers.append((decoded, first, len(rows)))
        for like in gathered.values():
            yield self._batch(like)

    def _batch(self, gathered: _Rows) -> pa.RecordBatch:
        try:
            arrays = gathered.arrays(self._schema, self._shard)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise JournalDamaged(self._shard, gathered.headers[0][1] - 1, str(error)) from error
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Rows:
    """Rows of one event, with the headers of their chunks."""

    __slots__ = ("event", "headers", "rows")

    def __init__(self, event: str) -> None:
        self.event = event
        self.rows: list[tuple[Any, ...]] = []
        self.headers: list[tuple[DecodedChunk, int, int]] = []
        """Of each chunk: itself, the seq of its first row and the number of its rows."""

    def arrays(self, schema: pa.Schema, shard: str) -> list[pa.Array]:
        """Return the columns of a schema; columns that the event lacks are null."""
        size = len(self.rows)
        fields = dict(zip(layout_of(self.event), self._columns(), strict=False))
        header = _Repeated(self.headers, size)
        made = []
        for field in schema:
            if field.name in fields:
                made.append(_array(fields[field.name], field.type))
            elif field.name == "event":
                made.append(repeat_value(self.event, field.type, size))
            elif field.name == "shard":
                made.append(repeat_value(shard, field.type, size))
            elif (values := header.column(field.name, field.type)) is not None:
                made.append(values)
            else:
                made.append(repeat_value(None, field.type, size))
        return made

    def _columns(self) -> Iterator[tuple[Any, ...]]:
        try:
            return iter(list(zip(*self.rows, strict=True)))
        except ValueError:
            return iter(list(zip_longest(*self.rows)))  # rows of unequal length


class _Repeated:
    """The headers of chunks as columns, each value repeated for every row of its chunk."""

    def __init__(self, headers: list[tuple[DecodedChunk, int, int]], size: int) -> None:
        self._size = size
        self._chunks, self._firsts, counts = zip(*headers, strict=True)
        self._counts = np.array(counts, dtype=np.int64)
        self._places: pa.Array | None = None

    def column(self, name: str, type_: pa.DataType) -> pa.Array | None:
        """Return a column, or None when headers have none of that name."""
        if name == "seq":
            return self._seq()
        if name not in HEADER:
            return None
        values = tuple(getattr(chunk, name) for chunk in self._chunks)
        if values[-1] == values[0] and values.count(values[0]) == len(values):
            return repeat_value(values[0], type_, self._size)
        if self._places is None:
            self._places = pa.array(np.repeat(np.arange(len(self._counts)), self._counts))
        return _array(values, type_).take(self._places)

    def _seq(self) -> pa.Array:
        firsts = np.array(self._firsts, dtype=np.int64)
        begins = np.cumsum(self._counts) - self._counts
        return pa.array(np.repeat(firsts - begins, self._counts) + np.arange(self._size))


def layout_of(event: str) -> tuple[str, ...]:
    """Return the fields of an event's rows; none for an unknown event."""
    try:
        return LAYOUTS[Event(event)]
    except ValueError:
        return _NO_LAYOUT  # written by a newer version: its header is still worth a row


def _array(values: tuple[Any, ...], type_: pa.DataType) -> pa.Array:
    first = values[0]
    if values[-1] == first and values.count(first) == len(values):
        # Types, lanes, attempts, and whatever a queue does not use: one value for all, made ten times faster.
        return repeat_value(first, type_, len(values))
    return _array_of(values, type_)


def repeat_value(value: Any, type_: pa.DataType, size: int) -> pa.Array:
    """Return a column of `size` equal values, sliced from a cached one, because allocating memory costs most."""
    if isinstance(value, bytes) or size > _KEPT_ROWS:
        return _column_of(value, type_, size)
    return _cached_column(value, type_).slice(0, size)


@lru_cache(maxsize=64)
def _cached_column(value: Any, type_: pa.DataType) -> pa.Array:
    return _column_of(value, type_, _KEPT_ROWS)


def _column_of(value: Any, type_: pa.DataType, size: int) -> pa.Array:
    return pa.nulls(size, type_) if value is None else pa.repeat(_array_of((value,), type_)[0], size)


def _array_of(values: tuple[Any, ...], type_: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type_):
        return pa.array(values, _INTEGER).cast(_MILLISECONDS).cast(type_)
    return pa.array(values, type_)
