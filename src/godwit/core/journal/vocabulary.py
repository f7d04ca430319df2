"""The journal's words: events, row layouts, chunks and positions.

A chunk is one MessagePack array `[version, epoch, first_seq, at, event, queue, group, worker, depth, rows]`. Rows are
arrays in the event's layout; layouts only ever grow at the end, and a reader takes a missing field as null. Times are
milliseconds since 1970, `seq` counts rows and is dense per shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from godwit.core.names import is_name

VERSION: Final = 1

Row = Sequence[Any]


class Event(StrEnum):
    """Every transition there is."""

    QUEUE_CREATED = "queue_created"
    QUEUE_REMOVED = "queue_removed"
    GROUP_CREATED = "group_created"
    GROUP_REMOVED = "group_removed"
    PURGED = "purged"
    ENQUEUED = "enqueued"
    SCHEDULED = "scheduled"
    DELIVERED = "delivered"
    EXTENDED = "extended"
    ACKED = "acked"
    ACK_REFUSED = "ack_refused"
    NACKED = "nacked"
    POSTPONED = "postponed"
    LEASE_EXPIRED = "lease_expired"
    LEASE_MOVED = "lease_moved"
    HANDED_BACK = "handed_back"
    DEAD_LETTERED = "dead_lettered"
    MESSAGE_EXPIRED = "message_expired"
    CANCELLED = "cancelled"
    REPLAYED = "replayed"
    DISCARDED = "discarded"
    DROPPED = "dropped"
    DUPLICATE = "duplicate"


_ARRIVAL = (
    "message_id", "publish_seq", "copy", "copies", "type", "priority", "lane", "ordering_key",
    "ready_at", "deliver_at", "expires_at", "size", "schedule_id", "campaign", "replay_of", "body",
)  # fmt: skip
_ATTEMPT = ("message_id", "publish_seq", "delivery_id", "attempt", "failures", "crashes")
_END = (*_ATTEMPT, "run_ms", "type", "lane", "ordering_key", "error_kind", "error_fingerprint")
_REMOVAL = ("count", "publish_seq_first", "publish_seq_last")

LAYOUTS: Final[dict[Event, tuple[str, ...]]] = {
    Event.QUEUE_CREATED: ("body",),
    Event.QUEUE_REMOVED: _REMOVAL,
    Event.GROUP_CREATED: ("body",),
    Event.GROUP_REMOVED: _REMOVAL,
    Event.PURGED: _REMOVAL,
    Event.ENQUEUED: _ARRIVAL,
    Event.SCHEDULED: _ARRIVAL,
    Event.DELIVERED: (*_ATTEMPT, "lease_until", "wait_ms", "type", "lane", "ordering_key"),
    Event.EXTENDED: ("message_id", "publish_seq", "delivery_id", "lease_until"),
    Event.ACKED: (*_ATTEMPT, "run_ms", "type", "lane", "ordering_key", "result"),
    Event.ACK_REFUSED: ("delivery_id",),
    Event.NACKED: (*_END, "ready_at"),
    Event.POSTPONED: (*_END, "ready_at"),
    Event.LEASE_EXPIRED: (*_END, "ready_at"),
    Event.LEASE_MOVED: ("message_id", "publish_seq", "delivery_id", "lease_until"),
    Event.HANDED_BACK: (*_END, "ready_at"),
    Event.DEAD_LETTERED: _END,
    Event.MESSAGE_EXPIRED: _END,
    Event.CANCELLED: ("message_id", "publish_seq"),
    Event.REPLAYED: (*_ARRIVAL, "former_seq"),
    Event.DISCARDED: ("message_id", "publish_seq", "target"),
    Event.DROPPED: ("message_id", "publish_seq", "size"),
    Event.DUPLICATE: ("message_id",),
}
RETURN_KINDS: Final = {Event.NACKED: "transient", Event.POSTPONED: "postponed"}
"""The kind of error that a returned delivery has in the journal."""
HEADER: Final = ("epoch", "shard", "seq", "at", "event", "queue", "group", "worker", "depth")


class Position(msgspec.Struct, frozen=True, order=True):
    """A place in a shard: everything up to and including `seq` of the journal called `epoch`."""

    epoch: str
    seq: int


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
_PARTITION_DIGITS: Final = 3
SPAN: Final = 1 << 36
"""How many `publish_seq` a partition of a queue has: those of partition `p` begin after `p * SPAN`."""


def shard_name(queue: str, partition: int = 0) -> str:
    """Return the name of the journal of one partition of a queue."""
    return f"{queue}#{partition}"


def shard_parts(shard: str) -> tuple[str, int] | None:
    """Return queue and partition of a shard's name; None when it cannot be one."""
    queue, _, number = shard.rpartition("#")
    if not is_name(queue) or not number.isdecimal() or len(number) > _PARTITION_DIGITS or str(int(number)) != number:
        return None
    return queue, int(number)


def numbers_of(shard: str) -> range:
    """Return the `publish_seq` that messages of a shard can have."""
    _, partition = shard_parts(shard) or ("", 0)
    return range(partition * SPAN + 1, (partition + 1) * SPAN + 1) if partition else range(SPAN + 1)


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
