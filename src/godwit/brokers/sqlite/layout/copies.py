"""Copies that have a row of their own, and the places they wait in."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from godwit.brokers.sqlite.layout.rows import ASIDE, GroupRow
from godwit.brokers.sqlite.layout.runs import ENVELOPE_FIELDS, MARKS, Message
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.core.failures.failure import FailureKind, ProcessingError

AGAIN: Final = 0
LANE: Final = 4
DELAYED: Final = 8
BLOCKED: Final = 9
"""Slots: again and lane are followed by the number of the lane."""

WAITING_COLUMNS: Final = (
    "slot, ord, seq, run, lane, key, size, attempt, failures, crashes, ready_at, expiry, returned, errors"
)  # fmt: skip
INSERT_WAITING: Final = f"INSERT INTO broker_waiting (group_id, {WAITING_COLUMNS}) VALUES ({', '.join('?' * 15)})"  # noqa: S608
SELECT_WAITING: Final = f"SELECT {WAITING_COLUMNS} FROM broker_waiting WHERE group_id = ?"  # noqa: S608
DELETE_WAITING: Final = "DELETE FROM broker_waiting WHERE group_id = ? AND slot = ? AND ord = ? AND seq = ?"
INSERT_LETTER: Final = "INSERT INTO broker_letters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[ProcessingError, ...]).decode


def encode_errors(errors: tuple[ProcessingError, ...]) -> bytes | None:
    """Return a history as stored."""
    return _encode(errors) if errors else None


def decode_errors(stored: bytes | None) -> tuple[ProcessingError, ...]:
    """Return a stored history."""
    return _decode(stored) if stored is not None else ()


class CopyRow:
    """A message as one group has it, in a row of its own."""

    __slots__ = (
        "attempt", "crashes", "errors", "expiry", "failures", "key", "lane", "ord", "ready_at", "returned", "run",
        "seq", "size", "slot",
    )  # fmt: skip

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.slot: int
        self.ord: int
        self.seq: int
        self.run: int
        self.lane: int
        self.key: str | None
        self.size: int
        self.attempt: int
        self.failures: int
        self.crashes: int
        self.ready_at: int
        self.expiry: int | None
        self.returned: int
        self.errors: bytes | None
        (
            self.slot, self.ord, self.seq, self.run, self.lane, self.key, self.size, self.attempt, self.failures,
            self.crashes, self.ready_at, self.expiry, self.returned, self.errors,
        ) = row  # fmt: skip

    @property
    def row(self) -> tuple[Any, ...]:
        """What is stored while it waits."""
        return (
            self.slot, self.ord, self.seq, self.run, self.lane, self.key, self.size, self.attempt, self.failures,
            self.crashes, self.ready_at, self.expiry, self.returned, self.errors,
        )  # fmt: skip


def new_copy(message: Message, run: int, *, ordered_lane: int | None) -> CopyRow:
    """Return a copy of a message that has just come in; its key counts when the group keeps order."""
    seq, ready_at, lane, expiry = message[ENVELOPE_FIELDS:MARKS]
    key = message[7] if ordered_lane is not None else None
    if key is not None:
        lane = ordered_lane
    return CopyRow((0, 0, seq, run, lane, key, message[3], 0, 0, 0, ready_at, expiry, 0, None))


def admit(work: SqliteStep, group: GroupRow, copy: CopyRow, now_ms: int, turn: int) -> None:
    """Take in a new copy, at the place its time and key ask for; `turn` is its place in the order of arrival."""
    group.bytes += copy.size
    if copy.key is not None:
        row = (group.id, copy.key)
        if not work.execute("INSERT OR IGNORE INTO broker_heads VALUES (?, ?)", row).rowcount:
            group.blocked += 1
            _store(work, group, copy, BLOCKED, copy.seq)
            return
    wait(work, group, copy, now_ms, turn)


def wait(work: SqliteStep, group: GroupRow, copy: CopyRow, now_ms: int, turn: int | None = None) -> None:
    """Put a copy where it becomes deliverable: now, or when its time has come."""
    if copy.ready_at > now_ms:
        group.delayed += 1
        _store(work, group, copy, DELAYED, copy.ready_at)
        return
    group.ready += 1
    group.explicit += 1
    work.ready.add(group.queue.name)
    if copy.returned:
        _store(work, group, copy, AGAIN + copy.lane, copy.seq)
    else:
        _store(work, group, copy, LANE + copy.lane, group.queue.next_turn() if turn is None else turn)


def _store(work: SqliteStep, group: GroupRow, copy: CopyRow, slot: int, ord: int) -> None:
    copy.slot, copy.ord = slot, ord
    if copy.expiry is not None:
        group.expiring += 1
    work.execute(INSERT_WAITING, (group.id, *copy.row))


def withdraw(work: SqliteStep, group: GroupRow, copy: CopyRow) -> None:
    """Take a waiting copy out of its place."""
    work.execute(DELETE_WAITING, (group.id, copy.slot, copy.ord, copy.seq))
    if copy.expiry is not None:
        group.expiring -= 1
    if copy.slot < DELAYED:
        group.ready -= 1
        group.explicit -= 1
    elif copy.slot == DELAYED:
        group.delayed -= 1
    else:
        group.blocked -= 1


def give_back(work: SqliteStep, group: GroupRow, copy: CopyRow, ready_at: int, now_ms: int) -> None:
    """Let a copy wait again whose lease was ended."""
    copy.ready_at = ready_at
    copy.returned = 1
    if ready_at > now_ms:
        store_alone(work, group, copy)
    wait(work, group, copy, now_ms)


def end(work: SqliteStep, group: GroupRow, copy: CopyRow, now_ms: int, *, blocked: bool = False) -> None:
    """Count a copy out that is done, dead or cancelled, and let the next of its key follow."""
    group.bytes -= copy.size
    if copy.key is not None and not blocked:
        release_key(work, group, copy.key, now_ms)


def release_key(work: SqliteStep, group: GroupRow, key: str, now_ms: int) -> None:
    """Make the next blocked copy the head of its key."""
    following = f"{SELECT_WAITING} AND slot = {BLOCKED} AND key = ? ORDER BY seq LIMIT 1"
    row = work.execute(following, (group.id, key)).fetchone()
    if row is None:
        work.execute("DELETE FROM broker_heads WHERE group_id = ? AND key = ?", (group.id, key))
        return
    copy = CopyRow(row)
    withdraw(work, group, copy)
    wait(work, group, copy, now_ms)


def bury(
    work: SqliteStep, group: GroupRow, copy: CopyRow, kind: FailureKind, now_ms: int, *, blocked: bool = False
) -> None:
    """Make a dead letter of a copy that is in no place any more."""
    end(work, group, copy, now_ms, blocked=blocked)
    store_alone(work, group, copy)
    group.letter_seq += 1
    group.dead += 1
    values = (
        group.id, group.letter_seq, copy.run, copy.seq, copy.size, kind.value, now_ms, copy.ready_at, copy.attempt,
        copy.failures, copy.crashes, copy.errors,
    )  # fmt: skip
    work.execute(INSERT_LETTER, values)


def store_alone(work: SqliteStep, group: GroupRow, copy: CopyRow) -> None:
    """Give a copy that stays for long a run of its own, so that it does not keep its neighbours' bodies."""
    messages = work.runs.read(copy.run)
    if len(messages) == 1:
        return
    message = next(message for message in messages if message[ENVELOPE_FIELDS] == copy.seq)
    work.ended[copy.run] += 1
    copy.run = group.queue.floor(ASIDE) + group.queue.next_turn()
    work.runs.write(copy.run, [message], live=1, holds=0)
