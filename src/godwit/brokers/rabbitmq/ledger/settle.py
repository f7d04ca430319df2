"""What ends or moves a lease in the ledger. Each step names the token it is for: a lease of another worker stays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from godwit.brokers.contract import Ack
from godwit.brokers.rabbitmq.ledger.pull import Lease, end_row
from godwit.brokers.rabbitmq.ledger.transaction import DEAD, LEASED, WAITING, GroupBook, LedgerTransaction, QueueBook
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.rows import JournalRow, acked_row, refused_row, renewed_row, returned_row
from godwit.core.journal.shards import shard_name
from godwit.core.journal.vocabulary import Event
from godwit.core.names import AckId

Rows = dict[tuple[str, str, Event, str | None], list[Any]]


class Return(msgspec.Struct):
    """A copy that was sent anew: why, when it is ready, and what the journal says of it."""

    lease: Lease
    event: Event | None
    ready_at_ms: int
    run_ms: int | None = None
    kind: str | None = None
    fingerprint: str | None = None


class Burial(msgspec.Struct):
    """A copy that was sent to the dead letter queue."""

    lease: Lease
    kind: FailureKind
    run_ms: int | None = None
    fingerprint: str | None = None


class Done(msgspec.Struct):
    """A copy that was handled."""

    lease: Lease
    ack: Ack


def _place(tx: LedgerTransaction, lease: Lease) -> tuple[QueueBook, GroupBook] | None:
    book = tx.find(lease.queue)
    group = book.groups.get(lease.group) if book is not None else None
    return (book, group) if book is not None and group is not None else None


def acked(tx: LedgerTransaction, ended: Sequence[Done]) -> list[Lease]:
    """Strike out what is done; return the leases that another worker had by then."""
    rows: Rows = {}
    late = []
    for done in ended:
        lease = done.lease
        place = _place(tx, lease)
        struck = tx.sql(
            "DELETE FROM copies WHERE queue = ? AND grp = ? AND seq = ? AND token = ? AND place = ?",
            (lease.queue, lease.group, lease.seq, lease.token, LEASED),
        )
        if not struck.rowcount or place is None:
            late.append(lease)
            continue
        book, group = place
        size = lease.inbound.header.size
        group.unlease(size)
        group.leave(size)
        envelope = lease.inbound.envelope
        row = acked_row(
            envelope.id, lease.seq, lease.token, lease.attempt, lease.failures, lease.crashes,
            tx.now(book) - lease.leased_at_ms if done.ack.run_ms is None else done.ack.run_ms,
            envelope.type, 0, envelope.ordering_key, done.ack,
        )  # fmt: skip
        rows.setdefault((lease.queue, lease.group, Event.ACKED, lease.worker), []).append(row)
    _write(tx, rows)
    return late


def returned(tx: LedgerTransaction, returns: Sequence[Return]) -> list[Lease]:
    """Let copies wait again that were sent anew; return the leases that another worker had by then."""
    rows: Rows = {}
    late = []
    for one in returns:
        lease = one.lease
        place = _place(tx, lease)
        moved = tx.sql(
            "UPDATE copies SET place = ?, turn = ?, ready_at = ?, attempt = ?, failures = ?, crashes = ?, token = NULL,"
            " worker = NULL, lease_until = NULL WHERE queue = ? AND grp = ? AND seq = ? AND turn = ?"
            " AND (token IS ? OR NOT ?)",
            (
                WAITING, lease.turn + 1, one.ready_at_ms, lease.attempt, lease.failures, lease.crashes, lease.queue,
                lease.group, lease.seq, lease.turn, lease.token, lease.was_leased,
            ),
        )  # fmt: skip
        if not moved.rowcount or place is None:
            late.append(lease)
            continue
        book, group = place
        if lease.was_leased:
            group.unlease(lease.inbound.header.size)
        if one.event is not None:
            row = returned_row(end_row(lease, tx.now(book), one.run_ms, one.kind, one.fingerprint), one.ready_at_ms)
            rows.setdefault((lease.queue, lease.group, one.event, lease.worker), []).append(row)
    _write(tx, rows)
    return late


def buried(tx: LedgerTransaction, burials: Sequence[Burial]) -> list[Lease]:
    """Count copies as dead that are in the dead letter queue; return the leases that another worker had by then."""
    rows: Rows = {}
    late = []
    for one in burials:
        lease = one.lease
        place = _place(tx, lease)
        struck = tx.sql(
            "UPDATE copies SET place = ?, attempt = ?, failures = ?, crashes = ?, token = NULL, worker = NULL,"
            " lease_until = NULL WHERE queue = ? AND grp = ? AND seq = ? AND place != ? AND (token IS ? OR NOT ?)",
            (
                DEAD, lease.attempt, lease.failures, lease.crashes, lease.queue, lease.group, lease.seq, DEAD,
                lease.token, lease.was_leased,
            ),
        )  # fmt: skip
        if not struck.rowcount or place is None:
            late.append(lease)
            continue
        book, group = place
        size = lease.inbound.header.size
        if lease.was_leased:
            group.unlease(size)
        group.leave(size)
        group.dead += 1
        event = Event.DEAD_LETTERED if lease.was_leased else Event.MESSAGE_EXPIRED
        if one.kind is not FailureKind.EXPIRED:
            event = Event.DEAD_LETTERED
        row = end_row(lease, tx.now(book), one.run_ms, one.kind, one.fingerprint)
        worker = lease.worker if lease.was_leased else None
        rows.setdefault((lease.queue, lease.group, event, worker), []).append(row)
    _write(tx, rows)
    return late


def extended(tx: LedgerTransaction, leases: Iterable[tuple[Lease, int]], event: Event = Event.EXTENDED) -> None:
    """Write down when leases end now."""
    rows: Rows = {}
    for lease, deadline_ms in leases:
        if _place(tx, lease) is None:
            continue
        moved = tx.sql(
            "UPDATE copies SET lease_until = ? WHERE queue = ? AND grp = ? AND seq = ? AND token = ?",
            (deadline_ms, lease.queue, lease.group, lease.seq, lease.token),
        )
        if moved.rowcount:
            row = renewed_row(lease.inbound.envelope.id, lease.seq, lease.token, deadline_ms)
            worker = lease.worker if event is Event.EXTENDED else None
            rows.setdefault((lease.queue, lease.group, event, worker), []).append(row)
    _write(tx, rows)


def lost(tx: LedgerTransaction, leases: Sequence[Lease]) -> None:
    """Let copies wait again whose connection is gone: the server delivers them again, and no counter grows."""
    rows: Rows = {}
    for lease in leases:
        place = _place(tx, lease)
        if place is None:
            continue
        book, group = place
        moved = tx.sql(
            "UPDATE copies SET place = ?, ready_at = ?, token = NULL, worker = NULL, lease_until = NULL"
            " WHERE queue = ? AND grp = ? AND seq = ? AND token = ? AND place = ?",
            (WAITING, tx.now(book), lease.queue, lease.group, lease.seq, lease.token, LEASED),
        )
        if moved.rowcount:
            group.unlease(lease.inbound.header.size)
            row = returned_row(end_row(lease, tx.now(book), None, None), tx.now(book))
            rows.setdefault((lease.queue, lease.group, Event.HANDED_BACK, lease.worker), []).append(row)
    _write(tx, rows)


def refused(tx: LedgerTransaction, ack_ids: Sequence[AckId]) -> None:
    """Write down the ack ids that were not valid, where their queue is known."""
    by_queue: dict[str, list[JournalRow]] = {}
    for ack_id in ack_ids:
        queue, _, rest = ack_id.partition("#")
        partition, _, rest = rest.partition("#")
        _, _, token = rest.partition("#")
        if token and ack_id.isascii() and shard_name(queue) == f"{queue}#{partition}":
            by_queue.setdefault(queue, []).append(refused_row(token))
    for name, rows in by_queue.items():
        book = tx.find(name)
        if book is not None:
            tx.journal(book, Event.ACK_REFUSED, None, None, rows)


def _write(tx: LedgerTransaction, rows: Rows) -> None:
    for (queue, name, event, worker), found in rows.items():
        book = tx.queue(queue)
        tx.journal(book, event, book.group(name), worker, found)
