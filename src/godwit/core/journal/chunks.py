"""Chunks: rows of one step, event and group, packed together.

A chunk is one MessagePack array `[version, epoch, first_seq, at, event, queue, group, worker, depth, rows, actor,
app_version]`. `seq` counts rows and is dense per shard. What is null at its end is left out, so that steps without an
actor and a version cost nothing; a reader takes what is missing as null.

This is the one place where Python writes and reads that array; Lua writes it in `write` of `redis/lua/_step.lua`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from godwit.core.journal.vocabulary import LAYOUTS, Event, Row

VERSION: Final = 1
_ARRAY: Final = 0x90
"""The first byte of an array of up to 15 values, whose number is added to it."""
_SHARED: Final = ("epoch", "at", "event", "queue", "group", "worker", "depth", "actor", "app_version")
"""The fields of a chunk that are those of each of its rows."""

EventT = TypeVar("EventT")
RowsT = TypeVar("RowsT")


class ChunkOf(msgspec.Struct, Generic[EventT, RowsT], frozen=True, array_like=True):
    """The rows of one step, event and group; readers that know newer events, or need no rows, choose other types."""

    version: int
    epoch: str
    first_seq: int
    at: int
    event: EventT
    queue: str
    group: str | None
    worker: str | None
    depth: int | None
    rows: RowsT
    actor: str | None = None
    """Who asked for the step: a user of the command line, a principal of the API, an application."""
    app_version: str | None = None
    """Of the application that published, for arrivals; of the worker's, for deliveries and what it settles."""

    @property
    def last_seq(self) -> int:
        """The seq of the last row."""
        return self.first_seq + len(self.rows) - 1  # type: ignore[arg-type]


Chunk = ChunkOf[Event, list[list[Any]]]
_FIELDS: Final = ChunkOf.__struct_fields__
FIELDS_TO_ROWS: Final = _FIELDS[: _FIELDS.index("rows") + 1]
"""The fields that every chunk has."""
FIELDS_BEHIND_ROWS: Final = _FIELDS[len(FIELDS_TO_ROWS) :]
"""The fields that only some chunks have."""
_ENDS_WITH_ROWS: Final = _ARRAY + len(FIELDS_TO_ROWS)

_encode: Final = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Chunk)


def _ending(actor: str | None, app_version: str | None) -> tuple[str | None, ...]:
    """Return what follows the rows of a chunk."""
    if app_version is not None:
        return (actor, app_version)
    return () if actor is None else (actor,)


def encode_chunk(
    epoch: str,
    first_seq: int,
    at_ms: int,
    event: Event,
    queue: str,
    group: str | None,
    worker: str | None,
    depth: int | None,
    rows: Sequence[Row],
    actor: str | None = None,
    app_version: str | None = None,
) -> bytes:
    """Return the chunk as stored."""
    chunk = (VERSION, epoch, first_seq, at_ms, event, queue, group, worker, depth, rows)
    if actor is None and app_version is None:
        return _encode(chunk)
    return _encode((*chunk, *_ending(actor, app_version)))


def encode_parts(
    event: Event,
    queue: str,
    group: str | None,
    worker: str | None,
    depth: int | None,
    rows: Sequence[Row],
    actor: str | None,
    app_version: str | None,
) -> tuple[bytes, bytes]:
    """Return a chunk without epoch, seq and time, in two parts, for `joined` to complete when it is read."""
    ending = _ending(actor, app_version)
    opening = bytes((_ENDS_WITH_ROWS + len(ending),)) if ending else b""
    header = b"".join(map(_encode, (event, queue, group, worker, depth)))
    return opening + header, b"".join(map(_encode, (rows, *ending)))


def joined(epoch: str, first_seq: int, at_ms: int, header: bytes, rows: bytes) -> bytes:
    """Return the chunk of two parts made by `encode_parts`."""
    opening, facts = header[:1], header[1:]
    if opening[0] & 0xF0 != _ARRAY:  # a text: the event of a chunk that ends with its rows
        opening, facts = bytes((_ENDS_WITH_ROWS,)), header
    return b"".join((opening, *map(_encode, (VERSION, epoch, first_seq, at_ms)), facts, rows))


def decode_chunk(chunk: bytes) -> Chunk:
    """Return a stored chunk; raises msgspec.DecodeError when it is damaged."""
    return _decoder.decode(chunk)


def without_ending(chunk: bytes) -> tuple[bytes, str | None, str | None]:
    """Return a chunk that ends with its rows, and the actor and the version that followed them.

    Raises msgspec.DecodeError when something else follows.
    """
    more = chunk[0] - _ENDS_WITH_ROWS if chunk else 0
    if more <= 0:
        return chunk, None, None
    read = _unread.decode(chunk)
    ending = b"".join(map(_encode, (read.actor, read.app_version)[:more]))
    if more > len(FIELDS_BEHIND_ROWS) or not chunk.endswith(ending):
        raise msgspec.DecodeError("a chunk ends with what this version does not know")
    return b"".join((bytes((_ENDS_WITH_ROWS,)), chunk[1 : len(chunk) - len(ending)])), read.actor, read.app_version


_unread: Final = msgspec.msgpack.Decoder(ChunkOf[str, msgspec.Raw])


def mentions(chunk: bytes, message_id: str) -> bool:
    """Say, without decoding it, whether a chunk may concern a message: it names it, or removes messages unnamed."""
    return message_id.encode() in chunk or any(event in chunk for event in _REMOVING)


_REMOVING: Final = tuple(event.encode() for event in (Event.QUEUE_REMOVED, Event.GROUP_REMOVED, Event.PURGED))


def rows_of(chunk: Chunk, shard: str) -> Iterator[dict[str, Any]]:
    """Give every row of a chunk as named fields, the header's included."""
    layout = LAYOUTS[chunk.event]
    shared = dict.fromkeys(layout) | {name: getattr(chunk, name) for name in _SHARED} | {"shard": shard}
    for offset, row in enumerate(chunk.rows):
        named: dict[str, Any] = shared | {"seq": chunk.first_seq + offset}
        named.update(zip(layout, row, strict=False))
        yield named
