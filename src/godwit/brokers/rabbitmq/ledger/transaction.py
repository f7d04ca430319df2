"""A step on the ledger: the queues and groups it loaded, its journal chunks, written together at its end."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from godwit.core.errors import GroupNotFound, QueueNotFound
from godwit.core.journal.chunks import encode_chunk
from godwit.core.journal.queue_time import ClockLag, behind
from godwit.core.journal.vocabulary import VERSIONED, Event, Row
from godwit.core.names import GroupName, QueueName, is_name
from godwit.core.queues import GroupSpec, JournalBody, QueueSpec

WAITING: Final = 0
LEASED: Final = 1
SENDING: Final = 2
DEAD: Final = 3

_queue_spec = lru_cache(1_000)(msgspec.json.Decoder(QueueSpec).decode)
_group_spec = lru_cache(1_000)(msgspec.json.Decoder(GroupSpec).decode)

_QUEUE: Final = (
    "SELECT spec, epoch, seq, at_ms, publish_seq, published, duplicates, journal_bytes, journal_dropped"
    " FROM queues WHERE name = ? AND declared"
)
_GROUP: Final = "SELECT name, spec, depth, bytes, leased, leased_bytes, dead, dropped, letter_seq FROM groups"


class GroupBook:
    """What a group holds, as counters."""

    __slots__ = ("bytes", "dead", "depth", "dropped", "leased", "leased_bytes", "letter_seq", "name", "queue", "spec")

    def __init__(self, queue: QueueName, row: Sequence[Any]) -> None:
        self.queue = queue
        self.name: GroupName = row[0]
        self.spec: GroupSpec = _group_spec(row[1])
        self.depth, self.bytes, self.leased, self.leased_bytes, self.dead, self.dropped, self.letter_seq = row[2:]

    @property
    def counters(self) -> tuple[int, ...]:
        """What is written back."""
        return (self.depth, self.bytes, self.leased, self.leased_bytes, self.dead, self.dropped, self.letter_seq)

    def lease(self, size: int) -> None:
        """Count a lease given out."""
        self.leased += 1
        self.leased_bytes += size

    def unlease(self, size: int) -> None:
        """Count a lease ended."""
        self.leased -= 1
        self.leased_bytes -= size

    def leave(self, size: int) -> None:
        """Count a copy out."""
        self.depth -= 1
        self.bytes -= size


class QueueBook:
    """A queue's numbers and those of its groups."""

    __slots__ = (
        "at_ms", "duplicates", "epoch", "groups", "journal_bytes", "journal_dropped", "name", "publish_seq",
        "published", "seq", "spec",
    )  # fmt: skip

    def __init__(self, name: QueueName, row: Sequence[Any], groups: Iterable[GroupBook]) -> None:
        self.name = name
        self.spec: QueueSpec = _queue_spec(row[0])
        self.epoch: str = row[1]
        self.seq, self.at_ms, self.publish_seq, self.published, self.duplicates = row[2:7]
        self.journal_bytes, self.journal_dropped = row[7:9]
        self.groups = {group.name: group for group in groups}

    def group(self, name: GroupName) -> GroupBook:
        """Return a group that must exist."""
        group = self.groups.get(name)
        if group is None:
            raise GroupNotFound(self.name, name, tuple(self.groups))
        return group


class LedgerTransaction:
    """The ledger during one step."""

    def __init__(self, connection: sqlite3.Connection, now_ms: int, app_version: str | None = None) -> None:
        self.sql = connection.execute
        self.many = connection.executemany
        self._now_ms = now_ms
        self._app_version = app_version
        self._queues: dict[QueueName, QueueBook] = {}
        self._written: dict[QueueName, tuple[tuple[int, ...], dict[GroupName, tuple[int, ...]]]] = {}

    def queue(self, name: QueueName) -> QueueBook:
        """Return a queue that must be declared."""
        book = self.find(name)
        if book is None:
            raise QueueNotFound(name, tuple(self.names()))
        return book

    def find(self, name: QueueName) -> QueueBook | None:
        """Return a declared queue, if there is one of this name."""
        book = self._queues.get(name)
        if book is None and is_name(name):
            row = self.sql(_QUEUE, (name,)).fetchone()
            if row is None:
                return None
            groups = self.sql(f"{_GROUP} WHERE queue = ? AND declared ORDER BY position", (name,)).fetchall()
            book = QueueBook(name, row, (GroupBook(name, group) for group in groups))
            self._keep(book)
        return book

    def _keep(self, book: QueueBook) -> None:
        if self._now_ms >= book.at_ms:
            book.at_ms = self._now_ms
        else:
            self._go_on(book)
        self._queues[book.name] = book
        self._written[book.name] = (self._numbers(book), {group.name: group.counters for group in book.groups.values()})

    def _go_on(self, book: QueueBook) -> None:
        """Let the time of a queue go on whose clock went back."""
        row = self.sql("SELECT at_ms, clock_ms FROM lags WHERE queue = ?", (book.name,)).fetchone()
        lag = ClockLag(*row) if row is not None else None
        book.at_ms, counts = behind(book.at_ms, self._now_ms, lag)
        if counts != lag:
            self.sql("INSERT OR REPLACE INTO lags VALUES (?, ?, ?)", (book.name, *counts))

    @staticmethod
    def _numbers(book: QueueBook) -> tuple[int, ...]:
        return (
            book.seq, book.at_ms, book.publish_seq, book.published, book.duplicates, book.journal_bytes,
            book.journal_dropped,
        )  # fmt: skip

    def names(self) -> list[QueueName]:
        """Return all declared queues."""
        return [row[0] for row in self.sql("SELECT name FROM queues WHERE declared ORDER BY name")]

    def now(self, book: QueueBook) -> int:
        """Return the time of this step, which never goes back within a queue."""
        return int(book.at_ms)

    @property
    def clock_ms(self) -> int:
        """The clock's time."""
        return self._now_ms

    def journal(
        self,
        book: QueueBook,
        event: Event,
        group: GroupBook | None,
        worker: str | None,
        rows: Sequence[Row],
        *,
        actor: str | None = None,
    ) -> None:
        """Write one chunk."""
        if not rows:
            return
        depth = group.depth if group is not None else None
        name = group.name if group is not None else None
        version = self._app_version if event in VERSIONED else None
        chunk = encode_chunk(
            book.epoch, book.seq + 1, book.at_ms, event, book.name, name, worker, depth, rows, actor, version
        )
        book.seq += len(rows)
        book.journal_bytes += len(chunk)
        self.sql("INSERT INTO chunks VALUES (?, ?, ?, ?, ?)", (book.name, book.seq, len(rows), book.at_ms, chunk))

    def keeps_body(self, book: QueueBook, *, auto: bool) -> bool:
        """Say whether the journal keeps whole messages."""
        return book.spec.journal_body is JournalBody.ON or (auto and book.spec.journal_body is JournalBody.AUTO)

    def create_queue(self, spec: QueueSpec) -> QueueBook:
        """Begin a queue, or go on with the journal of one that was removed."""
        self.sql(
            "INSERT INTO queues VALUES (?1, ?2, ?2, 1, ?3, 0, 0, 0, 0, 0, 0, 0) ON CONFLICT (name) DO UPDATE"
            " SET spec = excluded.spec, first_spec = excluded.spec, declared = 1, published = 0, duplicates = 0",
            (spec.name, msgspec.json.encode(spec), secrets.token_hex(8)),
        )
        return self.queue(spec.name)

    def create_group(self, book: QueueBook, spec: GroupSpec) -> GroupBook:
        """Begin a group."""
        self.sql(
            "INSERT INTO groups VALUES (?1, ?2, (SELECT 1 + coalesce(max(position), 0) FROM groups WHERE queue = ?1),"
            " ?3, 1, 0, 0, 0, 0, 0, 0, 0) ON CONFLICT (queue, name) DO UPDATE SET spec = excluded.spec, declared = 1,"
            " position = excluded.position, depth = 0, bytes = 0, leased = 0, leased_bytes = 0, dead = 0, dropped = 0",
            (book.name, spec.name, msgspec.json.encode(spec)),
        )
        row = self.sql(f"{_GROUP} WHERE queue = ? AND name = ?", (book.name, spec.name)).fetchone()
        group = book.groups[spec.name] = GroupBook(book.name, row)
        self._written[book.name][1][spec.name] = group.counters
        return group

    def change_specs(self, book: QueueBook, queue: QueueSpec, groups: Iterable[GroupSpec]) -> None:
        """Write new settings of a queue and of groups it has."""
        self.sql("UPDATE queues SET spec = ? WHERE name = ?", (msgspec.json.encode(queue), book.name))
        book.spec = queue
        for spec in groups:
            self.sql(
                "UPDATE groups SET spec = ? WHERE queue = ? AND name = ?",
                (msgspec.json.encode(spec), book.name, spec.name),
            )
            book.groups[spec.name].spec = spec

    def forget(self, book: QueueBook) -> None:
        """Write a queue's numbers and load it anew when it is next asked for."""
        self._flush(book)
        del self._queues[book.name]
        del self._written[book.name]

    def flush(self) -> None:
        """Write what changed."""
        for book in self._queues.values():
            self._flush(book)

    def _flush(self, book: QueueBook) -> None:
        before, groups = self._written[book.name]
        numbers = self._numbers(book)
        # A look that changed nothing but the time leaves no trace.
        if numbers[:1] + numbers[2:] != before[:1] + before[2:]:
            self.sql(
                "UPDATE queues SET seq = ?, at_ms = ?, publish_seq = ?, published = ?, duplicates = ?,"
                " journal_bytes = ?, journal_dropped = ? WHERE name = ?",
                (*numbers, book.name),
            )
        for group in book.groups.values():
            if group.counters != groups.get(group.name):
                self.sql(
                    "UPDATE groups SET depth = ?, bytes = ?, leased = ?, leased_bytes = ?, dead = ?, dropped = ?,"
                    " letter_seq = ? WHERE queue = ? AND name = ?",
                    (*group.counters, book.name, group.name),
                )
