"""Queues and groups as rows: loaded by a step, changed as plain values, saved once at its end."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from godwit.core.names import GroupName, QueueName
from godwit.core.queues import GroupSpec, JournalBody, Lane, QueueSpec

TURN_BITS: Final = 40
PART_BITS: Final = 3
ASIDE: Final = 4
"""The part of a queue's runs that no group walks through: every copy in it has a row of its own."""

QUEUE_COLUMNS: Final = (
    "q.id, q.name, q.spec, s.turn, s.published, s.duplicates, "
    "s.id, s.name, s.epoch, s.seq, s.at, s.publish_seq, s.bytes"
)  # fmt: skip
SELECT_QUEUES: Final = f"SELECT {QUEUE_COLUMNS} FROM broker_queues q JOIN broker_shards s ON s.id = q.shard_id"  # noqa: S608
UPDATE_SHARD: Final = (
    "UPDATE broker_shards SET seq = ?, at = ?, publish_seq = ?, bytes = ?, turn = ?, published = ?, duplicates = ? "
    "WHERE id = ?"
)

_COUNTERS: Final = (
    "lane0", "lane1", "lane2", "lane3", "ready", "explicit", "skips", "blocked", "delayed", "expiring", "leased",
    "dead", "bytes", "leased_bytes", "dropped", "letter_seq", "pulls", "looked_at",
)  # fmt: skip
SELECT_GROUPS: Final = f"SELECT id, queue_id, name, spec, {', '.join(_COUNTERS)} FROM broker_groups"  # noqa: S608
UPDATE_GROUP: Final = f"UPDATE broker_groups SET {', '.join(f'{name} = ?' for name in _COUNTERS)} WHERE id = ?"  # noqa: S608
INSERT_GROUP: Final = (
    f"INSERT INTO broker_groups (queue_id, name, spec, {', '.join(_COUNTERS)}) "  # noqa: S608
    f"VALUES (?, ?, ?, {', '.join('?' * len(_COUNTERS))})"
)


@lru_cache(maxsize=1024)
def queue_spec(encoded: bytes) -> QueueSpec:
    """Return a stored queue spec."""
    return msgspec.json.decode(encoded, type=QueueSpec)


@lru_cache(maxsize=4096)
def group_spec(encoded: bytes) -> GroupSpec:
    """Return a stored group spec."""
    return msgspec.json.decode(encoded, type=GroupSpec)


class QueueRow:
    """A queue with its shard's counters."""

    __slots__ = (
        "at", "bytes", "duplicates", "epoch", "id", "name", "publish_seq", "published", "saved", "seq", "shard_id",
        "shard_name", "spec", "turn",
    )  # fmt: skip

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.id: int = row[0]
        self.name = QueueName(row[1])
        self.spec = queue_spec(row[2])
        self.turn: int
        self.published: int
        self.duplicates: int
        self.shard_id: int
        self.shard_name: str
        self.epoch: str
        self.seq: int
        self.at: int
        self.publish_seq: int
        self.bytes: int
        (
            self.turn, self.published, self.duplicates,
            self.shard_id, self.shard_name, self.epoch, self.seq, self.at, self.publish_seq, self.bytes,
        ) = row[3:]  # fmt: skip
        self.saved = self.counters

    @property
    def keeps_body(self) -> bool:
        """Whether the journal keeps whole messages: here it does unless told otherwise."""
        return self.spec.journal_body is not JournalBody.OFF

    def floor(self, part: int) -> int:
        """Return the run key below all runs of a part."""
        return (self.id << PART_BITS | part) << TURN_BITS

    def next_turn(self) -> int:
        """Give the next place in the order of arrival."""
        self.turn += 1
        return self.turn

    @property
    def counters(self) -> tuple[int, ...]:
        """What may change without a journal chunk."""
        return (self.turn, self.published, self.duplicates)

    @property
    def shard_values(self) -> tuple[int, ...]:
        """What `UPDATE_SHARD` writes."""
        return (self.seq, self.at, self.publish_seq, self.bytes, *self.counters, self.shard_id)


class GroupRow:
    """A group and its counters."""

    __slots__ = (
        "ack_prefix", "blocked", "bytes", "cursors", "dead", "delayed", "dropped", "expiring", "explicit", "id",
        "leased", "leased_bytes", "letter_seq", "looked_at", "name", "pulls", "queue", "ready", "saved", "skips",
        "spec",
    )  # fmt: skip

    def __init__(self, queue: QueueRow, row: tuple[Any, ...]) -> None:
        self.queue = queue
        self.id: int = row[0]
        self.name = GroupName(row[2])
        self.spec = group_spec(row[3])
        self.cursors = list(row[4:8])
        self.ack_prefix = f"{queue.shard_name}#{self.name}#"
        self.ready: int
        self.explicit: int
        self.skips: int
        self.blocked: int
        self.delayed: int
        self.expiring: int
        self.leased: int
        self.dead: int
        self.bytes: int
        self.leased_bytes: int
        self.dropped: int
        self.letter_seq: int
        self.pulls: int
        self.looked_at: int
        (
            self.ready, self.explicit, self.skips, self.blocked, self.delayed, self.expiring, self.leased, self.dead,
            self.bytes, self.leased_bytes, self.dropped, self.letter_seq, self.pulls, self.looked_at,
        ) = row[8:]  # fmt: skip
        self.saved = self.values

    @property
    def depth(self) -> int:
        """Copies that still wait for their end."""
        return self.ready + self.blocked + self.delayed + self.leased

    @property
    def ordered_lane(self) -> int:
        """Where messages with an ordering key wait."""
        return int(Lane.MEDIUM) if self.queue.spec.lanes > 1 else 0

    @property
    def values(self) -> tuple[int, ...]:
        """What `UPDATE_GROUP` writes."""
        return (
            *self.cursors, self.ready, self.explicit, self.skips, self.blocked, self.delayed, self.expiring,
            self.leased, self.dead, self.bytes, self.leased_bytes, self.dropped, self.letter_seq, self.pulls,
            self.looked_at, self.id,
        )  # fmt: skip


def new_group_values(queue: QueueRow, letter_seq: int, now_ms: int) -> tuple[int, ...]:
    """Return the counters of a group that begins after everything published so far."""
    return (*(queue.turn,) * 4, *(0,) * (len(_COUNTERS) - 7), letter_seq, 0, now_ms)
