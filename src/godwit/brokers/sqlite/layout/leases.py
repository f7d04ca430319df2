"""Leases: those given out together lie in one row, a block, which shrinks as they end.

A row per lease would cost two changes of an index per message; a block costs two per pull.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from godwit.brokers.sqlite.layout.copies import CopyRow
from godwit.brokers.sqlite.layout.rows import GroupRow
from godwit.brokers.sqlite.layout.step import SqliteStep

BLOCK_BITS: Final = 7
BLOCK_LEASES: Final = 100
"""Leases in a block at most: what has to be written when one of them ends."""
MARK_LENGTH: Final = 6

COLUMNS: Final = "id, group_id, mark, worker, delivered_at, leases"
INSERT_BLOCK: Final = (
    "INSERT INTO broker_leases (group_id, mark, worker, delivered_at, due, shortest, leases) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
UPDATE_BLOCK: Final = "UPDATE broker_leases SET due = ?, shortest = ?, leases = ? WHERE id = ?"
SELECT_BLOCK: Final = f"SELECT {COLUMNS} FROM broker_leases WHERE id = ?"  # noqa: S608
SELECT_OF_GROUP: Final = f"SELECT {COLUMNS} FROM broker_leases WHERE group_id = ?"  # noqa: S608


class LeaseRow(msgspec.Struct, array_like=True, gc=False):
    """A delivery that is not settled yet."""

    place: int
    run: int
    seq: int
    message_id: str
    type: str
    lane: int
    key: str | None
    size: int
    attempt: int
    failures: int
    crashes: int
    ready_at: int
    expiry: int | None
    errors: bytes | None
    until: int
    length: int

    def copy(self, group: GroupRow) -> CopyRow:
        """Return the copy it holds; its key counts when the group keeps order."""
        key = self.key if group.spec.message_ordering else None
        return CopyRow(
            (
                *(0, 0, self.seq, self.run, self.lane, key, self.size, self.attempt, self.failures, self.crashes),
                *(self.ready_at, self.expiry, 1, self.errors),
            )
        )


encode_leases = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[LeaseRow]).decode


class Block:
    """Leases of one pull that are still open, by their place in it."""

    __slots__ = ("changed", "delivered_at", "group_id", "id", "mark", "open", "worker")

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.id: int
        self.group_id: int
        self.mark: str
        self.worker: str
        self.delivered_at: int
        self.id, self.group_id, self.mark, self.worker, self.delivered_at, leases = row
        self.open: dict[int, LeaseRow] = {lease.place: lease for lease in _decode(leases)}
        self.changed = False

    def token(self, lease: LeaseRow) -> str:
        """Return what follows the group's prefix in the lease's ack id."""
        return f"{self.mark}{self.id << BLOCK_BITS | lease.place:x}"

    def save(self, work: SqliteStep) -> None:
        """Write what is left of it."""
        if not self.changed:
            return
        left = list(self.open.values())
        if left:
            due, shortest = min(lease.until for lease in left), min(lease.length for lease in left)
            work.execute(UPDATE_BLOCK, (due, shortest, encode_leases(left), self.id))
        else:
            work.execute("DELETE FROM broker_leases WHERE id = ?", (self.id,))


class Blocks:
    """The blocks a step touches."""

    def __init__(self, work: SqliteStep) -> None:
        self._work = work
        self._loaded: dict[int, Block | None] = {}

    def find(self, group: GroupRow, token: str) -> tuple[Block, LeaseRow] | None:
        """Return the open lease a token stands for in a group."""
        try:
            number = int(token[MARK_LENGTH:], 16)
        except ValueError:
            return None
        block_id = number >> BLOCK_BITS
        if block_id in self._loaded:
            block = self._loaded[block_id]
        else:
            row = None
            if 0 < block_id < 1 << 56:
                row = self._work.execute(SELECT_BLOCK, (block_id,)).fetchone()
            block = self._loaded[block_id] = Block(row) if row is not None else None
        if block is None or block.group_id != group.id:
            return None
        lease = block.open.get(number & (1 << BLOCK_BITS) - 1)
        # Written as we write it: int() would also read other spellings of the number.
        return (block, lease) if lease is not None and token == f"{block.mark}{number:x}" else None

    def save(self) -> None:
        """Write back what changed."""
        for block in self._loaded.values():
            if block is not None:
                block.save(self._work)


def blocks_of(work: SqliteStep, group: GroupRow, condition: str = "", *values: int) -> Iterable[Block]:
    """Return the blocks of a group, or some of them."""
    return [Block(row) for row in work.execute(SELECT_OF_GROUP + condition, (group.id, *values)).fetchall()]


def unlease(group: GroupRow, lease: LeaseRow) -> None:
    """Count a lease out of its group."""
    group.leased -= 1
    group.leased_bytes -= lease.size
