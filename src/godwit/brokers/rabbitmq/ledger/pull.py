"""What a pull writes in the ledger: whether a message that came in is delivered, dropped, sent on or buried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from godwit.brokers.rabbitmq.layout.message import InboundMessage
from godwit.brokers.rabbitmq.ledger.publish import arrival
from godwit.brokers.rabbitmq.ledger.transaction import (
    DEAD,
    LEASED,
    SENDING,
    WAITING,
    GroupBook,
    LedgerTransaction,
    QueueBook,
)
from godwit.core.clock import from_ms, milliseconds
from godwit.core.failures.failure import ErrorType, FailureKind, ProcessingError
from godwit.core.journal.rows import JournalRow, delivered_row, duplicate_row, ended_row, returned_row
from godwit.core.journal.vocabulary import Event
from godwit.core.names import GroupName, QueueName

EARLY_MS: Final = 50
"""A message that comes earlier than this before its time is sent to wait again."""
_ROW: Final = (
    "SELECT seq, id, size, place, turn, copy, copies, ready_at, attempt, failures, crashes, token, worker, leased_at"
    " FROM copies WHERE queue = ? AND grp = ? AND"
)


class Lease(msgspec.Struct):
    """A copy that a worker holds, or that is being settled: all that its end needs to know."""

    inbound: InboundMessage
    queue: QueueName
    group: GroupName
    seq: int
    turn: int
    token: str | None
    worker: str | None
    attempt: int
    failures: int
    crashes: int
    errors: tuple[ProcessingError, ...]
    ready_at_ms: int
    leased_at_ms: int
    length_ms: int
    deadline_ms: int
    was_leased: bool = True
    epoch: str = ""


class Taken(msgspec.Struct):
    """What became of the messages of one pull."""

    leases: list[Lease] = msgspec.field(default_factory=list)
    dropped: list[InboundMessage] = msgspec.field(default_factory=list)
    """Copies of messages that are done with: acknowledge them."""
    early: list[Lease] = msgspec.field(default_factory=list)
    silent: list[tuple[Lease, int]] = msgspec.field(default_factory=list)
    """Their last holder fell silent, and the group wants them to wait so many milliseconds."""
    dead: list[tuple[Lease, FailureKind]] = msgspec.field(default_factory=list)
    left: list[InboundMessage] = msgspec.field(default_factory=list)
    """Over a limit: they stay where they are."""
    now_ms: int = 0


class Taker:
    """A pull of one group."""

    def __init__(
        self,
        tx: LedgerTransaction,
        queue: QueueName,
        group: GroupName,
        *,
        worker: str,
        lease_ms: int,
        limit: int,
        max_bytes: int | None,
        tokens: Iterator[str],
        body: bool,
    ) -> None:
        self._tx = tx
        self._book: QueueBook = tx.queue(queue)
        self._group: GroupBook = self._book.group(group)
        self._worker, self._lease_ms, self._tokens = worker, lease_ms, tokens
        self._keeps = tx.keeps_body(self._book, auto=body)
        self._now_ms = tx.now(self._book)
        flow = self._group.spec.flow_control
        self._limit = limit if flow.max_messages is None else min(limit, flow.max_messages - self._group.leased)
        self._max_bytes, self._flow_bytes, self._bytes = max_bytes, flow.max_bytes, 0
        self._arrived: list[Any] = []
        self._silent: dict[str | None, list[Any]] = {}
        self._delivered: list[Any] = []
        self._updates: list[Any] = []
        self.taken = Taken(now_ms=self._now_ms)

    def take(self, arrived: Sequence[InboundMessage]) -> Taken:
        """Judge messages in order."""
        for index, inbound in enumerate(arrived):
            if not self._room(inbound):
                self.taken.left = list(arrived[index:])
                break
            self._judge(inbound)
        self._write()
        return self.taken

    def _room(self, inbound: InboundMessage) -> bool:
        count = len(self.taken.leases)
        if count >= self._limit:
            return False
        size = inbound.header.size
        if self._max_bytes is not None and count and self._bytes + size > self._max_bytes:
            return False
        leased = self._group.leased_bytes
        return self._flow_bytes is None or not self._group.leased or leased + size <= self._flow_bytes

    def _judge(self, inbound: InboundMessage) -> None:
        row = self._row(inbound)
        if row is None:
            self.taken.dropped.append(inbound)
            return
        seq, _, size, place, turn, _, _, ready_at, attempt, failures, crashes, token, worker, leased_at = row
        header = inbound.header
        if header.turn < turn or (place == LEASED and not inbound.redelivered and header.turn == turn):
            # An older copy, or the same one sent twice because its confirm was lost.
            self.taken.dropped.append(inbound)
            return
        if place == SENDING:
            if self._repeated(inbound, seq):
                self.taken.dropped.append(inbound)
                return
            self._arrive(inbound, row)
        lease = Lease(
            inbound, self._book.name, self._group.name, seq, header.turn, token, worker, attempt, failures, crashes,
            header.errors, ready_at, leased_at or self._now_ms, self._lease_ms, self._now_ms + self._lease_ms,
            place == LEASED, self._book.epoch,
        )  # fmt: skip
        if place == DEAD:
            self.taken.dead.append((lease, FailureKind.PERMANENT))
        elif not inbound.readable:
            lease.errors = (*lease.errors, _unreadable(self._now_ms))
            self.taken.dead.append((lease, FailureKind.PERMANENT))
        elif place == LEASED:
            self._after_silence(lease, size)
        elif header.expiry_ms and header.expiry_ms <= self._now_ms:
            self.taken.dead.append((lease, FailureKind.EXPIRED))
        elif header.ready_at_ms - self._now_ms > EARLY_MS:
            self.taken.early.append(lease)
        else:
            self._lease(lease, size)

    def _row(self, inbound: InboundMessage) -> Any:
        header, book, group = inbound.header, self._book, self._group
        if header.epoch == book.epoch and header.seq <= book.publish_seq:
            row = self._tx.sql(f"{_ROW} seq = ?", (book.name, group.name, header.seq)).fetchone()
            if row is None or row[1] == inbound.envelope.id:
                return row
        # Numbered by another ledger, or by this one in moments that a power cut took away from it.
        origin = origin_of(inbound)
        query = f"{_ROW} origin = ?"
        found = self._tx.sql(query, (book.name, group.name, origin)).fetchone()
        if found is None or (inbound.foreign and not inbound.redelivered):
            book.publish_seq += 1
            book.published += 1
            counters = (header.attempt + inbound.returns, header.failures, header.crashes)
            self._tx.sql(
                "INSERT INTO copies (queue, grp, seq, id, size, place, turn, copy, copies, ready_at, attempt, failures,"
                " crashes, origin) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 1, ?, ?, ?, ?, ?)",
                (
                    book.name, group.name, book.publish_seq, inbound.envelope.id, header.size, SENDING, header.turn,
                    header.ready_at_ms, *counters, origin,
                ),
            )  # fmt: skip
            found = self._tx.sql(
                f"{_ROW} seq = ?",
                (book.name, group.name, book.publish_seq),
            ).fetchone()
        return found

    def _repeated(self, inbound: InboundMessage, seq: int) -> bool:
        """Say whether a copy that is not in the ledger repeats an accepted message; claim its id if not."""
        window_ms = milliseconds(self._book.spec.dedup_window)
        if inbound.header.bypass or not window_ms:
            return False
        name = (self._book.name, inbound.envelope.id)
        known = self._tx.sql(
            "SELECT seq FROM ids WHERE queue = ? AND id = ? AND until > ?", (*name, self._now_ms)
        ).fetchone()
        if known is not None and known[0] != seq:
            address = (self._book.name, self._group.name, seq)
            self._tx.sql("DELETE FROM copies WHERE queue = ? AND grp = ? AND seq = ?", address)
            self._book.duplicates += 1
            self._tx.journal(self._book, Event.DUPLICATE, None, None, [duplicate_row(inbound.envelope.id)])
            return True
        self._tx.sql(
            "INSERT OR REPLACE INTO ids VALUES (?, ?, ?, ?)",
            (*name, seq, max(self._now_ms, inbound.envelope.deliver_at_ms or 0) + window_ms),
        )
        return False

    def _arrive(self, inbound: InboundMessage, row: Any) -> None:
        """Count a copy in that came before its publisher wrote it down, or that came from another program."""
        seq, _, size, _, _, copy, copies, ready_at, *_ = row
        self._group.depth += 1
        self._group.bytes += size
        self._tx.sql(
            "UPDATE copies SET place = ? WHERE queue = ? AND grp = ? AND seq = ?",
            (WAITING, self._book.name, self._group.name, seq),
        )
        self._arrived.append(
            arrival(inbound.envelope, seq, (copy, copies), ready_at, inbound.header.expiry_ms, keeps=self._keeps)
        )

    def _after_silence(self, lease: Lease, size: int) -> None:
        spec = self._group.spec
        lease.crashes += 1
        tries = lease.failures + lease.crashes
        if spec.max_crashes is not None and lease.crashes >= spec.max_crashes:
            self.taken.dead.append((lease, FailureKind.POISON))
        elif spec.max_delivery_attempts is not None and tries >= spec.max_delivery_attempts:
            self.taken.dead.append((lease, FailureKind.TRANSIENT))
        elif spec.backoff is not None and (delay := spec.backoff.delay(attempt=tries)):
            self.taken.silent.append((lease, milliseconds(delay)))
        else:
            ended = returned_row(end_row(lease, self._now_ms, None, None), self._now_ms)
            self._silent.setdefault(lease.worker, []).append(ended)
            self._group.unlease(size)
            lease.ready_at_ms = self._now_ms
            self._lease(lease, size)

    def _lease(self, lease: Lease, size: int) -> None:
        lease.attempt += 1
        lease.token, lease.worker, lease.leased_at_ms = next(self._tokens), self._worker, self._now_ms
        lease.was_leased = True
        self._group.lease(size)
        self._bytes += size
        envelope = lease.inbound.envelope
        self._delivered.append(
            delivered_row(
                envelope.id, lease.seq, lease.token, lease.attempt, lease.failures, lease.crashes, lease.deadline_ms,
                self._now_ms - lease.ready_at_ms, envelope.type, 0, envelope.ordering_key,
            )
        )  # fmt: skip
        self._updates.append(
            (
                LEASED, lease.turn, lease.ready_at_ms, lease.attempt, lease.crashes, lease.token, lease.worker,
                lease.deadline_ms, self._now_ms, self._book.name, self._group.name, lease.seq,
            )
        )  # fmt: skip
        self.taken.leases.append(lease)

    def _write(self) -> None:
        tx, book, group = self._tx, self._book, self._group
        if self._updates:
            tx.many(
                "UPDATE copies SET place = ?, turn = ?, ready_at = ?, attempt = ?, crashes = ?, token = ?, worker = ?,"
                " lease_until = ?, leased_at = ? WHERE queue = ? AND grp = ? AND seq = ?",
                self._updates,
            )
        tx.journal(book, Event.ENQUEUED, group, None, self._arrived)
        for worker, rows in self._silent.items():
            tx.journal(book, Event.LEASE_EXPIRED, group, worker, rows)
        tx.journal(book, Event.DELIVERED, group, self._worker, self._delivered)


def origin_of(inbound: InboundMessage) -> str:
    """Return under which name a copy is known that this ledger did not number."""
    if inbound.foreign:
        return f"id:{inbound.envelope.id}"
    return f"{inbound.header.epoch}:{inbound.header.seq}:{inbound.envelope.id}"


def end_row(
    lease: Lease, now_ms: int, run_ms: int | None, kind: str | None, fingerprint: str | None = None
) -> JournalRow:
    """Return the journal row of a lease's end other than an ack."""
    envelope = lease.inbound.envelope
    if not lease.was_leased:
        token, run = None, None
    else:
        token, run = lease.token, now_ms - lease.leased_at_ms if run_ms is None else run_ms
    return ended_row(
        envelope.id, lease.seq, token, lease.attempt, lease.failures, lease.crashes, run, envelope.type, 0,
        envelope.ordering_key, kind, fingerprint,
    )  # fmt: skip


def _unreadable(now_ms: int) -> ProcessingError:
    text = "the body is not JSON; it was published without Godwit"
    return ProcessingError(type=ErrorType.VALIDATION, message=text, retryable=False, timestamp=from_ms(now_ms))
