"""Chunks: rows of one step, event and group, packed together.

A chunk is one MessagePack array `[version, epoch, first_seq, at, event, queue, group, worker, depth, rows]`. `seq`
counts rows and is dense per shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from godwit.core.journal.vocabulary import LAYOUTS, Event, Row

VERSION: Final = 1


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """The rows of one step, event and group."""

    version: int
    epoch: str
    first_seq: int
    at: int
    event: Event
    queue: str
    group: str | None
    worker: str | None
    depth: int | None
    rows: list[list[Any]]

    @property
    def last_seq(self) -> int:
        """The seq of the last row."""
        return self.first_seq + len(self.rows) - 1


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Chunk)


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
) -> bytes:
    """Return the chunk as stored."""
    return _encoder.encode((VERSION, epoch, first_seq, at_ms, event, queue, group, worker, depth, rows))


def decode_chunk(chunk: bytes) -> Chunk:
    """Return a stored chunk; raises msgspec.DecodeError when it is damaged."""
    return _decoder.decode(chunk)


def mentions(chunk: bytes, message_id: str) -> bool:
    """Say, without decoding it, whether a chunk may concern a message: it names it, or removes messages unnamed."""
    return message_id.encode() in chunk or any(event in chunk for event in _REMOVING)


_REMOVING: Final = tuple(event.encode() for event in (Event.QUEUE_REMOVED, Event.GROUP_REMOVED, Event.PURGED))


def rows_of(chunk: Chunk, shard: str) -> Iterator[dict[str, Any]]:
    """Give every row of a chunk as named fields, the header's included."""
    layout = LAYOUTS[chunk.event]
    for offset, row in enumerate(chunk.rows):
        named: dict[str, Any] = dict.fromkeys(layout)
        named |= {
            "epoch": chunk.epoch,
            "shard": shard,
            "seq": chunk.first_seq + offset,
            "at": chunk.at,
            "event": chunk.event,
            "queue": chunk.queue,
            "group": chunk.group,
            "worker": chunk.worker,
            "depth": chunk.depth,
        }
        named.update(zip(layout, row, strict=False))
        yield named
