"""Declaring and removing queues and groups in the ledger."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from godwit.brokers.arguments import groups_or_default, one_server_only
from godwit.brokers.rabbitmq.ledger.transaction import DEAD, SENDING, WAITING, LedgerTransaction, QueueBook
from godwit.core.errors import AlreadyExistsError, InvalidSetting
from godwit.core.journal.rows import JournalRow, cancelled_row, declared_row, held_row, removal_row
from godwit.core.journal.vocabulary import Event
from godwit.core.names import GroupName, QueueName, is_message_id
from godwit.core.queues import GROUP_FIXED, QUEUE_FIXED, GroupSpec, QueueSpec, changed_setting

_NO_ORDER = (
    "off on RabbitMQ, which cannot keep one message per key in flight; use redis:// or sqlite:// for ordered keys"
)


def wanted(tx: LedgerTransaction, spec: QueueSpec, groups: Sequence[GroupSpec]) -> Sequence[GroupSpec]:
    """Return the groups to declare; refuse what cannot be changed or kept, before anything is changed."""
    book = tx.find(spec.name)
    if book is not None and (differs := changed_setting(book.spec, spec, QUEUE_FIXED)):
        raise AlreadyExistsError("Queue", spec.name, differs)
    for group in groups:
        known = book.groups.get(group.name) if book is not None else None
        if known is not None and (differs := changed_setting(known.spec, group, GROUP_FIXED)):
            raise AlreadyExistsError("Group", group.name, differs)
    for group in groups:
        if group.message_ordering:
            raise InvalidSetting("message_ordering", group.message_ordering, _NO_ORDER)
    one_server_only(spec)
    return groups_or_default(groups, exists=book is not None)


def declare(tx: LedgerTransaction, spec: QueueSpec, groups: Sequence[GroupSpec]) -> None:
    """Write a queue and its groups down."""
    book = tx.find(spec.name)
    if book is None:
        book = tx.create_queue(spec)
        tx.journal(book, Event.QUEUE_CREATED, None, None, [declared_row(msgspec.json.encode(spec))])
    tx.change_specs(book, spec, [group for group in groups if group.name in book.groups])
    for group in groups:
        if group.name not in book.groups:
            created = tx.create_group(book, group)
            tx.journal(book, Event.GROUP_CREATED, created, None, [declared_row(msgspec.json.encode(group))])


def first_spec(tx: LedgerTransaction, spec: QueueSpec) -> QueueSpec:
    """Return the settings with which the server's queues were made: those in its first declaration."""
    book = tx.find(spec.name)
    if book is None:
        return spec
    row = tx.sql("SELECT first_spec FROM queues WHERE name = ?", (spec.name,)).fetchone()
    return msgspec.json.decode(row[0], type=QueueSpec)


def remove(
    tx: LedgerTransaction, name: QueueName, group: GroupName | None, *, actor: str | None = None
) -> list[GroupName]:
    """Strike out a queue or a group with all it held; return the groups that are gone."""
    book = tx.queue(name)
    gone = list(book.groups) if group is None else [book.group(group).name]
    removed = removal(tx, book, gone, dead_too=True)
    for one in gone:
        for table in ("copies", "letters"):
            tx.sql(f"DELETE FROM {table} WHERE queue = ? AND grp = ?", (name, one))  # noqa: S608 (our own names)
        tx.sql("UPDATE groups SET declared = 0 WHERE queue = ? AND name = ?", (name, one))
    if group is None:
        tx.sql("DELETE FROM ids WHERE queue = ?", (name,))
        tx.sql("UPDATE queues SET declared = 0 WHERE name = ?", (name,))
        tx.journal(book, Event.QUEUE_REMOVED, None, None, [removed], actor=actor)
        for one in gone:
            del book.groups[one]
    else:
        taken = book.groups.pop(group)
        taken.depth = 0
        tx.journal(book, Event.GROUP_REMOVED, taken, None, [removed], actor=actor)
    tx.forget(book)
    return gone


def removal(tx: LedgerTransaction, book: QueueBook, groups: Sequence[GroupName], *, dead_too: bool) -> JournalRow:
    """Return count and numbers of the copies in these groups that are about to go, as the journal tells it."""
    count, seqs = 0, list[int]()
    for group in groups:
        places = (SENDING,) if dead_too else (SENDING, 1, DEAD)
        marks = ", ".join("?" * len(places))
        found = tx.sql(
            f"SELECT count(*), min(seq), max(seq) FROM copies WHERE queue = ? AND grp = ? AND place NOT IN ({marks})",  # noqa: S608
            (book.name, group, *places),
        ).fetchone()
        parts = [found]
        if dead_too:
            parts.append(
                tx.sql(
                    "SELECT count(*), min(seq), max(seq) FROM letters WHERE queue = ? AND grp = ?", (book.name, group)
                ).fetchone()
            )
        for number, low, high in parts:
            if number:
                count += number
                seqs += (low, high)
    return removal_row(seqs, count)


def purge(
    tx: LedgerTransaction, name: QueueName, group: GroupName | None, *, actor: str | None = None
) -> tuple[int, list[GroupName]]:
    """Strike out what waits; return how many copies, and the groups to empty on the server."""
    book = tx.queue(name)
    groups = list(book.groups.values()) if group is None else [book.group(group)]
    purged = 0
    for one in groups:
        removed = removal(tx, book, [one.name], dead_too=False)
        size = tx.sql(
            "SELECT coalesce(sum(size), 0) FROM copies WHERE queue = ? AND grp = ? AND place = ?",
            (name, one.name, WAITING),
        ).fetchone()[0]
        # What is just being sent goes too: the server cannot tell it from what was there before.
        tx.sql("DELETE FROM copies WHERE queue = ? AND grp = ? AND place IN (?, ?)", (name, one.name, WAITING, SENDING))
        if removed[0]:
            one.depth -= removed[0]
            one.bytes -= size
            purged += removed[0]
            tx.journal(book, Event.PURGED, one, None, [removed], actor=actor)
    return purged, [one.name for one in groups]


def note_hold(
    tx: LedgerTransaction,
    event: Event,
    name: QueueName,
    group: GroupName | None,
    *,
    hold: bytes | None,
    actor: str | None,
) -> None:
    """Write down that a queue or a group is held back or let go."""
    book = tx.queue(name)
    tx.journal(book, event, None if group is None else book.group(group), None, [held_row(hold)], actor=actor)


def cancel(tx: LedgerTransaction, name: QueueName, message_id: str, *, actor: str | None = None) -> bool:
    """Strike out a message wherever it waits; RabbitMQ's copy is dropped when it comes."""
    book = tx.queue(name)
    found = False
    for group in book.groups.values() if is_message_id(message_id) else ():
        rows = tx.sql(
            "SELECT seq, size FROM copies WHERE queue = ? AND id = ? AND grp = ? AND place = ?",
            (name, message_id, group.name, WAITING),
        ).fetchall()
        for seq, size in rows:
            tx.sql("DELETE FROM copies WHERE queue = ? AND grp = ? AND seq = ?", (name, group.name, seq))
            group.leave(size)
        cancelled = [cancelled_row(message_id, seq) for seq, _ in rows]
        tx.journal(book, Event.CANCELLED, group, None, cancelled, actor=actor)
        found = found or bool(rows)
    return found
