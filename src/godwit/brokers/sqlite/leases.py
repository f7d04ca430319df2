"""Leases as rows: one per delivery, and one row per pull that bounds when any of its leases ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from godwit.brokers.sqlite.copies import Copy
from godwit.brokers.sqlite.rows import Group
from godwit.brokers.sqlite.work import Work

PULL_BITS: Final = 14
MARK_LENGTH: Final = 6

LEASE_COLUMNS: Final = (
    "id, run, seq, message_id, type, lane, key, size, attempt, failures, crashes, ready_at, expiry, errors, until, length"
)
INSERT_LEASE: Final = f"INSERT INTO broker_leases VALUES ({', '.join('?' * 16)})"
INSERT_PULL: Final = (
    "INSERT INTO broker_pulls (group_id, mark, worker, delivered_at, due, shortest, open) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
SELECT_PULL: Final = "SELECT group_id, mark, worker, delivered_at FROM broker_pulls WHERE id = ?"
SELECT_OF_PULL: Final = f"SELECT {LEASE_COLUMNS} FROM broker_leases WHERE id >= ? AND id < ?"  # noqa: S608
END_LEASES: Final = (
    f"DELETE FROM broker_leases WHERE id IN (SELECT value FROM json_each(?)) RETURNING {LEASE_COLUMNS}"  # noqa: S608
)
FIND_LEASES: Final = f"SELECT {LEASE_COLUMNS} FROM broker_leases WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608


class Pull:
    """Whose leases these are."""

    __slots__ = ("delivered_at", "group_id", "mark", "worker")

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.group_id: int
        self.mark: str
        self.worker: str
        self.delivered_at: int
        self.group_id, self.mark, self.worker, self.delivered_at = row


class Lease:
    """One delivery that is not settled yet."""

    __slots__ = (
        "attempt", "crashes", "errors", "expiry", "failures", "id", "key", "lane", "length", "message_id", "pull",
        "ready_at", "run", "seq", "size", "token", "type", "until",
    )  # fmt: skip

    def __init__(self, row: tuple[Any, ...], pull: Pull) -> None:
        self.id: int
        self.run: int
        self.seq: int
        self.message_id: str
        self.type: str
        self.lane: int
        self.key: str | None
        self.size: int
        self.attempt: int
        self.failures: int
        self.crashes: int
        self.ready_at: int
        self.expiry: int | None
        self.errors: bytes | None
        self.until: int
        self.length: int
        (
            self.id, self.run, self.seq, self.message_id, self.type, self.lane, self.key, self.size, self.attempt,
            self.failures, self.crashes, self.ready_at, self.expiry, self.errors, self.until, self.length,
        ) = row  # fmt: skip
        self.pull = pull
        self.token = f"{pull.mark}{self.id:x}"

    def copy(self, group: Group) -> Copy:
        """Return the copy it holds; its key counts when the group keeps order."""
        key = self.key if group.spec.message_ordering else None
        return Copy((
            0, 0, self.seq, self.run, self.lane, key, self.size, self.attempt, self.failures, self.crashes,
            self.ready_at, self.expiry, 1, self.errors,
        ))  # fmt: skip


def lease_number(token: str) -> int | None:
    """Return the number in a token, or None when it cannot be one of ours."""
    try:
        number = int(token[MARK_LENGTH:], 16)
    except ValueError:
        return None
    return number if 0 < number < 1 << 63 else None


def find_leases(work: Work, tokens: dict[str, Group], *, end: bool) -> dict[tuple[int, str], Lease]:
    """Return (and with `end` delete) open leases by group and token; unknown tokens are not in the answer.

    `tokens` maps `<group id>:<token>` to the group, so that a token is only good for the group it was given in.
    """
    pulls: dict[int, Pull | None] = {}
    numbers: dict[int, str] = {}
    for address, group in tokens.items():
        token = address.partition(":")[2]
        number = lease_number(token)
        if number is None:
            continue
        pull_id = number >> PULL_BITS
        if pull_id not in pulls:
            row = work.execute(SELECT_PULL, (pull_id,)).fetchone()
            pulls[pull_id] = Pull(row) if row is not None else None
        pull = pulls[pull_id]
        if pull is not None and pull.group_id == group.id and f"{pull.mark}{number:x}" == token:
            numbers[number] = token
    if not numbers:
        return {}
    found: dict[tuple[int, str], Lease] = {}
    ended: Counter[int] = Counter()
    for row in work.execute(END_LEASES if end else FIND_LEASES, (str(list(numbers)),)).fetchall():
        pull_id = row[0] >> PULL_BITS
        pull = pulls[pull_id]
        if pull is not None:
            lease = Lease(row, pull)
            found[pull.group_id, lease.token] = lease
            ended[pull_id] += 1
    if end:
        close_pulls(work, ended.items())
    return found


def close_pulls(work: Work, ended: Iterable[tuple[int, int]]) -> None:
    """Count ended leases out of their pulls, and delete pulls without any."""
    for pull_id, count in ended:
        left = work.execute("UPDATE broker_pulls SET open = open - ? WHERE id = ? RETURNING open", (count, pull_id)).fetchall()
        if left == [(0,)]:
            work.execute("DELETE FROM broker_pulls WHERE id = ?", (pull_id,))


def leases_of_pull(work: Work, pull_id: int, pull: Pull) -> list[Lease]:
    """Return the open leases of one pull."""
    rows = work.execute(SELECT_OF_PULL, (pull_id << PULL_BITS, (pull_id + 1) << PULL_BITS)).fetchall()
    return [Lease(row, pull) for row in rows]


def unlease(group: Group, lease: Lease) -> None:
    """Count a lease out of its group."""
    group.leased -= 1
    group.leased_bytes -= lease.size
