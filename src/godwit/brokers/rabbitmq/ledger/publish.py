"""What a publish writes in the ledger: numbers before it is sent, arrivals after it was confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from godwit.brokers.chunks import addresses
from godwit.brokers.limits import Fill, fits, misfits
from godwit.brokers.rabbitmq.ledger.transaction import SENDING, WAITING, GroupBook, LedgerTransaction, QueueBook
from godwit.core.clock import milliseconds
from godwit.core.journal.rows import JournalRow, arrival_row, dropped_row, duplicate_row
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import Envelope
from godwit.core.names import GroupName


class Numbered(msgspec.Struct, frozen=True):
    """A fresh message and its number; `dropped` names the groups that have no room for it."""

    envelope: Envelope
    seq: int
    ready_at_ms: int
    expiry_ms: int
    dropped: frozenset[GroupName] = frozenset()


class PublishPlan(msgspec.Struct, frozen=True):
    """A chunk that may be sent: what is fresh, what is a repetition, and to which groups it goes."""

    queue: str
    epoch: str
    groups: tuple[GroupName, ...]
    fresh: tuple[Numbered, ...]
    chunk: Sequence[Envelope]
    now_ms: int
    moved: bool
    fixed: bool = False
    """Whether the server's queues are as they were declared: only then the exchange reaches exactly the groups."""

    def targets(self, one: Numbered) -> tuple[GroupName, ...]:
        """Return the groups a message goes to."""
        groups = self.groups if one.envelope.group is None else (one.envelope.group,)
        return tuple(group for group in groups if group not in one.dropped) if one.dropped else groups


def check_addresses(tx: LedgerTransaction, envelopes: Sequence[Envelope]) -> None:
    """Refuse a call that names a queue or a group that does not exist."""
    for queue, group in addresses(envelopes):
        book = tx.queue(queue)
        if group is not None:
            book.group(group)


def reserve(tx: LedgerTransaction, chunk: Sequence[Envelope], *, moved: bool) -> PublishPlan:
    """Give numbers to what is fresh, check limits, and note what is about to be sent."""
    book = tx.queue(chunk[0].queue)
    now_ms = tx.now(book)
    fresh = list(chunk) if moved or not book.spec.dedup_window else _fresh(tx, book, chunk)
    dropped = {group.name: _misfits(tx, book, group, fresh, moved=moved) for group in book.groups.values()}
    ttl_ms = milliseconds(book.spec.ttl) if book.spec.ttl is not None and not moved else 0
    numbered = []
    for index, envelope in enumerate(fresh):
        book.publish_seq += 1
        deliver_ms = envelope.deliver_at_ms
        numbered.append(
            Numbered(
                envelope,
                book.publish_seq,
                now_ms if deliver_ms is None or deliver_ms <= now_ms else deliver_ms,
                0 if moved else envelope.expiry_ms(ttl_ms),
                frozenset(name for name, indexes in dropped.items() if index in indexes),
            )
        )
    plan = PublishPlan(book.name, book.epoch, tuple(book.groups), tuple(numbered), chunk, now_ms, moved)
    _note(tx, plan)
    return plan


def _fresh(tx: LedgerTransaction, book: QueueBook, chunk: Sequence[Envelope]) -> list[Envelope]:
    marks = ", ".join("?" * len(chunk))
    known = {
        row[0]
        for row in tx.sql(
            f"SELECT id FROM ids WHERE queue = ? AND until > ? AND id IN ({marks})",  # noqa: S608 (question marks)
            (book.name, tx.now(book), *(envelope.id for envelope in chunk)),
        )
    }
    fresh = []
    for envelope in chunk:
        if envelope.id not in known:
            known.add(envelope.id)
            fresh.append(envelope)
    return fresh


def _misfits(
    tx: LedgerTransaction, book: QueueBook, group: GroupBook, fresh: Sequence[Envelope], *, moved: bool
) -> frozenset[int]:
    spec = book.spec
    if fits(spec, Fill(group.depth, group.bytes, 0), len(fresh), sum(one.size for one in fresh)):
        return frozenset()
    delayed = waiting_later(tx, group, tx.now(book))
    fill = Fill(group.depth, group.bytes, delayed)
    return frozenset(misfits(spec, group.spec, fill, fresh, tx.now(book), moved=moved))


def waiting_later(tx: LedgerTransaction, group: GroupBook, now_ms: int) -> int:
    """Return how many copies of a group wait for their time."""
    found = tx.sql(
        "SELECT count(*) FROM copies WHERE queue = ? AND grp = ? AND place = 0 AND ready_at > ?",
        (group.queue, group.name, now_ms),
    ).fetchone()
    return int(found[0])


def _note(tx: LedgerTransaction, plan: PublishPlan) -> None:
    rows = []
    for position, group in enumerate(plan.groups):
        for one in plan.fresh:
            envelope = one.envelope
            if (envelope.group is not None and envelope.group != group) or group in one.dropped:
                continue
            which = (0, 1) if envelope.group is not None else (position, len(plan.groups))
            rows.append(
                (plan.queue, group, one.seq, envelope.id, envelope.size, SENDING, 0, *which, one.ready_at_ms, 0, 0, 0)
            )
    tx.many(
        "INSERT INTO copies (queue, grp, seq, id, size, place, turn, copy, copies, ready_at, attempt, failures,"
        " crashes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )


def withdrawn(tx: LedgerTransaction, plan: PublishPlan) -> None:
    """Forget a chunk that was not sent; what was delivered all the same stays."""
    if plan.fresh:
        tx.sql(
            "DELETE FROM copies WHERE queue = ? AND seq BETWEEN ? AND ? AND place = ?",
            (plan.queue, plan.fresh[0].seq, plan.fresh[-1].seq, SENDING),
        )


def accepted(tx: LedgerTransaction, plan: PublishPlan, *, body: bool) -> set[int]:
    """Write down a confirmed chunk; return the numbers of those that another publisher was faster with."""
    book = tx.find(plan.queue)
    if book is None:
        return set()  # removed meanwhile, with all it held
    late = _remember(tx, book, plan)
    book.published += len(plan.fresh) - len(late)
    keeps = tx.keeps_body(book, auto=body)
    for position, name in enumerate(plan.groups):
        group = book.groups.get(name)
        if group is not None:
            _arrive(tx, book, group, position, plan, late, keeps=keeps)
    fresh_ids = {id(one.envelope) for one in plan.fresh if one.seq not in late}
    repeated = []
    for envelope in plan.chunk:
        if id(envelope) in fresh_ids:
            fresh_ids.discard(id(envelope))
        else:
            repeated.append(duplicate_row(envelope.id))
    book.duplicates += len(repeated)
    tx.journal(book, Event.DUPLICATE, None, None, repeated)
    return late


def _remember(tx: LedgerTransaction, book: QueueBook, plan: PublishPlan) -> set[int]:
    window_ms = milliseconds(book.spec.dedup_window)
    if not window_ms or plan.moved or not plan.fresh:
        return set()
    rows = [
        (
            plan.queue,
            one.envelope.id,
            one.seq,
            max(plan.now_ms, one.envelope.deliver_at_ms or 0) + window_ms,
            plan.now_ms,
        )
        for one in plan.fresh
    ]
    done = tx.many(
        "INSERT INTO ids VALUES (?1, ?2, ?3, ?4) ON CONFLICT (queue, id) DO UPDATE"
        " SET seq = excluded.seq, until = excluded.until WHERE ids.until <= ?5 OR ids.seq = excluded.seq",
        rows,
    )
    if done.rowcount == len(rows):
        return set()
    late = set()
    for one in plan.fresh:
        seq = tx.sql("SELECT seq FROM ids WHERE queue = ? AND id = ?", (plan.queue, one.envelope.id)).fetchone()[0]
        if seq != one.seq:
            late.add(one.seq)
            # Without a row its copy in RabbitMQ is recognised as done with, and dropped.
            tx.sql("DELETE FROM copies WHERE queue = ? AND seq = ? AND place = ?", (plan.queue, one.seq, SENDING))
    return late


def _arrive(
    tx: LedgerTransaction,
    book: QueueBook,
    group: GroupBook,
    position: int,
    plan: PublishPlan,
    late: set[int],
    *,
    keeps: bool,
) -> None:
    if not plan.fresh:
        return
    came = {
        row[0]
        for row in tx.sql(
            "UPDATE copies SET place = ? WHERE queue = ? AND grp = ? AND seq BETWEEN ? AND ? AND place = ?"
            " RETURNING seq",
            (WAITING, book.name, group.name, plan.fresh[0].seq, plan.fresh[-1].seq, SENDING),
        )
    }
    now, later, dropped = list[Any](), list[Any](), list[Any]()
    for one in plan.fresh:
        if one.seq in came:
            group.depth += 1
            group.bytes += one.envelope.size
            which = (0, 1) if one.envelope.group is not None else (position, len(plan.groups))
            row = arrival(one.envelope, one.seq, which, one.ready_at_ms, one.expiry_ms, keeps=keeps)
            (now if one.ready_at_ms <= plan.now_ms else later).append(row)
        elif group.name in one.dropped and one.seq not in late:
            dropped.append(dropped_row(one.envelope.id, one.seq, one.envelope.size))
    group.dropped += len(dropped)
    tx.journal(book, Event.ENQUEUED, group, None, now)
    tx.journal(book, Event.SCHEDULED, group, None, later)
    tx.journal(book, Event.DROPPED, group, None, dropped)


def arrival(
    envelope: Envelope, seq: int, which: tuple[int, int], ready_at_ms: int, expiry_ms: int, *, keeps: bool
) -> JournalRow:
    """Return the journal row of a copy that came in."""
    return arrival_row(
        envelope.id, seq, *which, envelope.type, envelope.priority, 0, envelope.ordering_key, ready_at_ms,
        envelope.deliver_at_ms, expiry_ms or None, envelope.size, envelope.schedule_id, envelope.campaign,
        envelope.replay_of, envelope.body if keeps else None, envelope.correlation_id, envelope.journal_attributes,
    )  # fmt: skip
