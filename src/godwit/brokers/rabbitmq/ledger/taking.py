"""What a pull writes in the ledger: whether a parcel is delivered, dropped, sent on or buried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from godwit.brokers.rabbitmq.ledger.books import DEAD, LEASED, SENDING, WAITING, Books, GroupBook, QueueBook
from godwit.brokers.rabbitmq.ledger.sending import arrival
from godwit.brokers.rabbitmq.parcels import Parcel
from godwit.core.clock import from_ms, milliseconds
from godwit.core.failures.failure import ErrorType, FailureKind, ProcessingError
from godwit.core.journal.vocabulary import Event
from godwit.core.names import GroupName, QueueName

EARLY_MS: Final = 50
"""A message that comes earlier than this before its time is sent to wait again."""
_ROW: Final = (
    "SELECT seq, id, size, place, turn, copy, copies, ready_at, attempt, failures, crashes, token, worker, leased_at"
    " FROM copies WHERE queue = ? AND grp = ? AND"
)


class Lease(msgspec.Struct):
    """A copy in somebody's hands, or on its way out of them: all that its end needs to know."""

    parcel: Parcel
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
    """What became of the parcels of one pull."""

    leases: list[Lease] = msgspec.field(default_factory=list)
    dropped: list[Parcel] = msgspec.field(default_factory=list)
    """Copies of messages that are done with: acknowledge them."""
    early: list[Lease] = msgspec.field(default_factory=list)
    silent: list[tuple[Lease, int]] = msgspec.field(default_factory=list)
    """Their last holder fell silent, and the group wants them to wait so many milliseconds."""
    dead: list[tuple[Lease, FailureKind]] = msgspec.field(default_factory=list)
    left: list[Parcel] = msgspec.field(default_factory=list)
    """Over a limit: they stay where they are."""
    now_ms: int = 0


class Taker:
    """One pull of one group."""

    def __init__(
        self,
        books: Books,
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
        self._books = books
        self._book: QueueBook = books.queue(queue)
        self._group: GroupBook = self._book.group(group)
        self._worker, self._lease_ms, self._tokens = worker, lease_ms, tokens
        self._keeps = books.keeps_body(self._book, auto=body)
        self._now_ms = books.now(self._book)
        flow = self._group.spec.flow_control
        self._limit = limit if flow.max_messages is None else min(limit, flow.max_messages - self._group.leased)
        self._max_bytes, self._flow_bytes, self._bytes = max_bytes, flow.max_bytes, 0
        self._arrived: list[Any] = []
        self._silent: dict[str | None, list[Any]] = {}
        self._delivered: list[Any] = []
        self._updates: list[Any] = []
        self.taken = Taken(now_ms=self._now_ms)

    def take(self, parcels: Sequence[Parcel]) -> Taken:
        """Judge parcels in order."""
        for index, parcel in enumerate(parcels):
            if not self._room(parcel):
                self.taken.left = list(parcels[index:])
                break
            self._judge(parcel)
        self._write()
        return self.taken

    def _room(self, parcel: Parcel) -> bool:
        count = len(self.taken.leases)
        if count >= self._limit:
            return False
        size = parcel.card.size
        if self._max_bytes is not None and count and self._bytes + size > self._max_bytes:
            return False
        leased = self._group.leased_bytes
        return self._flow_bytes is None or not self._group.leased or leased + size <= self._flow_bytes

    def _judge(self, parcel: Parcel) -> None:
        row = self._row(parcel)
        if row is None:
            self.taken.dropped.append(parcel)
            return
        seq, _, size, place, turn, _, _, ready_at, attempt, failures, crashes, token, worker, leased_at = row
        card = parcel.card
        if card.turn < turn or (place == LEASED and not parcel.redelivered and card.turn == turn):
            # An older copy, or the same one sent twice because its confirm was lost.
            self.taken.dropped.append(parcel)
            return
        if place == SENDING:
            if self._repeated(parcel, seq):
                self.taken.dropped.append(parcel)
                return
            self._arrive(parcel, row)
        lease = Lease(
            parcel, self._book.name, self._group.name, seq, card.turn, token, worker, attempt, failures, crashes,
            card.errors, ready_at, leased_at or self._now_ms, self._lease_ms, self._now_ms + self._lease_ms,
            place == LEASED, self._book.epoch,
        )  # fmt: skip
        if place == DEAD:
            self.taken.dead.append((lease, FailureKind.PERMANENT))
        elif not parcel.readable:
            lease.errors = (*lease.errors, _unreadable(self._now_ms))
            self.taken.dead.append((lease, FailureKind.PERMANENT))
        elif place == LEASED:
            self._after_silence(lease, size)
        elif card.expiry_ms and card.expiry_ms <= self._now_ms:
            self.taken.dead.append((lease, FailureKind.EXPIRED))
        elif card.ready_at_ms - self._now_ms > EARLY_MS:
            self.taken.early.append(lease)
        else:
            self._lease(lease, size)

    def _row(self, parcel: Parcel) -> Any:
        card, book, group = parcel.card, self._book, self._group
        if card.epoch == book.epoch and card.seq <= book.publish_seq:
            row = self._books.sql(f"{_ROW} seq = ?", (book.name, group.name, card.seq)).fetchone()
            if row is None or row[1] == parcel.envelope.id:
                return row
        # Numbered by another ledger, or by this one in moments that a power cut took away from it.
        origin = origin_of(parcel)
        query = f"{_ROW} origin = ?"
        found = self._books.sql(query, (book.name, group.name, origin)).fetchone()
        if found is None or (parcel.foreign and not parcel.redelivered):
            book.publish_seq += 1
            book.published += 1
            counters = (card.attempt + parcel.returns, card.failures, card.crashes)
            self._books.sql(
                "INSERT INTO copies (queue, grp, seq, id, size, place, turn, copy, copies, ready_at, attempt, failures,"
                " crashes, origin) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 1, ?, ?, ?, ?, ?)",
                (
                    book.name, group.name, book.publish_seq, parcel.envelope.id, card.size, SENDING, card.turn,
                    card.ready_at_ms, *counters, origin,
                ),
            )  # fmt: skip
            found = self._books.sql(
                f"{_ROW} seq = ?",
                (book.name, group.name, book.publish_seq),
            ).fetchone()
        return found

    def _repeated(self, parcel: Parcel, seq: int) -> bool:
        """Say whether a copy that nobody wrote down as accepted repeats an accepted message; claim its id if not."""
        window_ms = milliseconds(self._book.spec.dedup_window)
        if parcel.card.bypass or not window_ms:
            return False
        name = (self._book.name, parcel.envelope.id)
        known = self._books.sql(
            "SELECT seq FROM ids WHERE queue = ? AND id = ? AND until > ?", (*name, self._now_ms)
        ).fetchone()
        if known is not None and known[0] != seq:
            address = (self._book.name, self._group.name, seq)
            self._books.sql("DELETE FROM copies WHERE queue = ? AND grp = ? AND seq = ?", address)
            self._book.duplicates += 1
            self._books.journal(self._book, Event.DUPLICATE, None, None, [(parcel.envelope.id,)])
            return True
        self._books.sql(
            "INSERT OR REPLACE INTO ids VALUES (?, ?, ?, ?)",
            (*name, seq, max(self._now_ms, parcel.envelope.deliver_at_ms or 0) + window_ms),
        )
        return False

    def _arrive(self, parcel: Parcel, row: Any) -> None:
        """Count a copy in that came before its publisher wrote it down, or that nobody here published."""
        seq, _, size, _, _, copy, copies, ready_at, *_ = row
        self._group.depth += 1
        self._group.bytes += size
        self._books.sql(
            "UPDATE copies SET place = ? WHERE queue = ? AND grp = ? AND seq = ?",
            (WAITING, self._book.name, self._group.name, seq),
        )
        self._arrived.append(
            arrival(parcel.envelope, seq, (copy, copies), ready_at, parcel.card.expiry_ms, keeps=self._keeps)
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
            self._silent.setdefault(lease.worker, []).append((*end_row(lease, self._now_ms, None, None), self._now_ms))
            self._group.unlease(size)
            lease.ready_at_ms = self._now_ms
            self._lease(lease, size)

    def _lease(self, lease: Lease, size: int) -> None:
        lease.attempt += 1
        lease.token, lease.worker, lease.leased_at_ms = next(self._tokens), self._worker, self._now_ms
        lease.was_leased = True
        self._group.lease(size)
        self._bytes += size
        envelope = lease.parcel.envelope
        self._delivered.append(
            (
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
        books, book, group = self._books, self._book, self._group
        if self._updates:
            books.many(
                "UPDATE copies SET place = ?, turn = ?, ready_at = ?, attempt = ?, crashes = ?, token = ?, worker = ?,"
                " lease_until = ?, leased_at = ? WHERE queue = ? AND grp = ? AND seq = ?",
                self._updates,
            )
        books.journal(book, Event.ENQUEUED, group, None, self._arrived)
        for worker, rows in self._silent.items():
            books.journal(book, Event.LEASE_EXPIRED, group, worker, rows)
        books.journal(book, Event.DELIVERED, group, self._worker, self._delivered)


def origin_of(parcel: Parcel) -> str:
    """Return under which name a copy is known that this ledger did not number."""
    if parcel.foreign:
        return f"id:{parcel.envelope.id}"
    return f"{parcel.card.epoch}:{parcel.card.seq}:{parcel.envelope.id}"


def end_row(
    lease: Lease, now_ms: int, run_ms: int | None, kind: str | None, fingerprint: str | None = None
) -> tuple[Any, ...]:
    """Return the journal row of a lease's end other than an ack."""
    envelope = lease.parcel.envelope
    if not lease.was_leased:
        token, run = None, None
    else:
        token, run = lease.token, now_ms - lease.leased_at_ms if run_ms is None else run_ms
    return (
        envelope.id, lease.seq, token, lease.attempt, lease.failures, lease.crashes, run, envelope.type, 0,
        envelope.ordering_key, kind, fingerprint,
    )  # fmt: skip


def _unreadable(now_ms: int) -> ProcessingError:
    text = "the body is not JSON; it was published without Godwit"
    return ProcessingError(type=ErrorType.VALIDATION, message=text, retryable=False, timestamp=from_ms(now_ms))
