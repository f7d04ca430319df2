"""Dead letters in the ledger: taken over from the dead letter queue, listed, replayed, discarded, moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from godwit.brokers.arguments import number_of
from godwit.brokers.contract import DeadLetter, LetterId
from godwit.brokers.rabbitmq.layout.message import GodwitHeader, InboundMessage
from godwit.brokers.rabbitmq.ledger.publish import arrival
from godwit.brokers.rabbitmq.ledger.pull import origin_of
from godwit.brokers.rabbitmq.ledger.transaction import (
    DEAD,
    LEASED,
    SENDING,
    WAITING,
    GroupBook,
    LedgerTransaction,
    QueueBook,
)
from godwit.core.errors import QueueFull, QueueNotFound
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.rows import discarded_row, ended_row, replayed_row
from godwit.core.journal.shards import shard_name
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import Envelope
from godwit.core.names import GroupName, QueueName

_DIGITS: Final = 18
CLAIM_MS: Final = 60_000
"""So long a letter is kept for the one who replays or moves it; if he dies meanwhile, others may try again."""


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """A letter as it lies in the file."""

    envelope: Envelope
    header: GodwitHeader
    kind: FailureKind
    dead_at_ms: int


class Claimed(msgspec.Struct, frozen=True):
    """A letter that one caller has for himself."""

    queue: QueueName
    group: GroupName
    number: int
    seq: int
    stored: Stored


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Stored)


def letter_id(queue: str, group: str, number: int) -> LetterId:
    """Return a letter's id: it sorts by time of death inside its group."""
    return LetterId(f"{shard_name(queue)}#{group}#{number:012d}")


def _address(letter: LetterId) -> tuple[str, str, int] | None:
    head, _, number = letter.rpartition("#")
    queue, mark, group = head.partition("#0#")
    return (queue, group, int(number)) if mark and group and number.isdecimal() and len(number) <= _DIGITS else None


# From the dead letter queue


class InboundLetter(msgspec.Struct, frozen=True):
    """A message of the dead letter queue, and how it got there."""

    inbound: InboundMessage
    group: GroupName | None
    kind: FailureKind


def take_over(tx: LedgerTransaction, queue: QueueName, found: Sequence[InboundLetter], *, body: bool) -> int:
    """Make letters of what the dead letter queue held; return how many deaths were news."""
    book = tx.find(queue)
    news = 0
    for one in found if book is not None else ():
        group = book.groups.get(one.group) if book is not None and one.group is not None else None
        if book is not None and group is not None:
            news += _take_over(tx, book, group, one, keeps=tx.keeps_body(book, auto=body))
    return news


def _take_over(tx: LedgerTransaction, book: QueueBook, group: GroupBook, found: InboundLetter, *, keeps: bool) -> int:
    inbound, header = found.inbound, found.inbound.header
    known = _known(tx, book, group, inbound)
    if known is None and ours(book, inbound):
        return 0  # it was taken over before, or has ended otherwise
    if known is None:
        book.publish_seq += 1
        book.published += 1
        seq, place, counters = book.publish_seq, WAITING, (header.attempt, header.failures, header.crashes)
        group.depth += 1
        group.bytes += header.size
        row = arrival(inbound.envelope, seq, (0, 1), header.ready_at_ms, header.expiry_ms, keeps=keeps)
        tx.journal(book, Event.ENQUEUED, group, None, [row])
    else:
        seq, place, *counters_row = known
        counters = tuple(counters_row)
        tx.sql("DELETE FROM copies WHERE queue = ? AND grp = ? AND seq = ?", (book.name, group.name, seq))
        if place == SENDING:
            group.depth += 1
            group.bytes += header.size
            row = arrival(inbound.envelope, seq, (0, 1), header.ready_at_ms, header.expiry_ms, keeps=keeps)
            tx.journal(book, Event.ENQUEUED, group, None, [row])
    if place != DEAD:
        _die(tx, book, group, found, seq, place, counters)
    now_ms = tx.now(book)
    attempt, failures, crashes = counters
    stored = Stored(
        inbound.envelope,
        msgspec.structs.replace(header, attempt=attempt, failures=failures, crashes=crashes),
        found.kind,
        header.dead_at_ms or now_ms,
    )
    group.letter_seq += 1
    tx.sql(
        "INSERT INTO letters VALUES (?, ?, ?, ?, ?, ?, 0, ?)",
        (book.name, group.name, group.letter_seq, seq, inbound.envelope.id, header.size, _encoder.encode(stored)),
    )
    return int(place != DEAD)


def _known(tx: LedgerTransaction, book: QueueBook, group: GroupBook, inbound: InboundMessage) -> Any:
    header = inbound.header
    columns = "SELECT seq, place, attempt, failures, crashes FROM copies WHERE queue = ? AND grp = ?"
    if ours(book, inbound):
        return tx.sql(f"{columns} AND seq = ?", (book.name, group.name, header.seq)).fetchone()
    return tx.sql(f"{columns} AND origin = ?", (book.name, group.name, origin_of(inbound))).fetchone()


def ours(book: QueueBook, inbound: InboundMessage) -> bool:
    """Say whether this ledger numbered a copy, and remembers so."""
    return inbound.header.epoch == book.epoch and inbound.header.seq <= book.publish_seq


def _die(
    tx: LedgerTransaction,
    book: QueueBook,
    group: GroupBook,
    found: InboundLetter,
    seq: int,
    place: int,
    counters: Sequence[int],
) -> None:
    """Write down a death that only the server knew of."""
    envelope = found.inbound.envelope
    if place == LEASED:
        group.unlease(found.inbound.header.size)
    group.leave(found.inbound.header.size)
    group.dead += 1
    event = Event.MESSAGE_EXPIRED if found.kind is FailureKind.EXPIRED else Event.DEAD_LETTERED
    attempt, failures, crashes = counters
    row = ended_row(
        envelope.id, seq, None, attempt, failures, crashes, None, envelope.type, 0, envelope.ordering_key, found.kind,
        None,
    )  # fmt: skip
    tx.journal(book, event, group, None, [row])


# Listing


def sources(tx: LedgerTransaction, name: QueueName) -> list[QueueBook]:
    """Return the queue of this name and those that share it as their dead letter queue."""
    found = [tx.queue(queue) for queue in tx.names()]
    return [book for book in found if name in (book.name, book.spec.dead_letter_queue)]


def page(
    tx: LedgerTransaction, name: QueueName, group: GroupName | None, after: LetterId | None, limit: int
) -> list[DeadLetter]:
    """Return letters beyond `after`, by queue, group and time of death."""
    found = sources(tx, name)
    if not found:
        raise QueueNotFound(name, tuple(tx.names()))
    letters: list[DeadLetter] = []
    places = sorted(
        (f"{shard_name(book.name)}#{one}#", book.name, one)
        for book in found
        for one in book.groups
        if group in (None, one)
    )
    for prefix, queue, one in places:
        if after is not None and f"{prefix}\x7f" < after:
            continue
        beyond = number_of(after.removeprefix(prefix)) if after is not None and after.startswith(prefix) else 0
        rows = tx.sql(
            "SELECT number, seq, letter FROM letters WHERE queue = ? AND grp = ? AND number > ?"
            " ORDER BY number LIMIT ?",
            (queue, one, beyond or 0, limit - len(letters)),
        )
        letters += [_dead_letter(queue, one, *row) for row in rows]
        if len(letters) >= limit:
            break
    return letters


def _dead_letter(queue: str, group: str, number: int, seq: int, data: bytes) -> DeadLetter:
    stored = _decoder.decode(data)
    header = stored.header
    return DeadLetter(
        id=letter_id(queue, group, number),
        queue=queue,
        group=group,
        envelope=stored.envelope,
        publish_seq=seq,
        kind=stored.kind,
        dead_at_ms=stored.dead_at_ms,
        attempt=header.attempt,
        failures=header.failures,
        crashes=header.crashes,
        errors=header.errors,
    )


# Replaying, moving, discarding


def claim(tx: LedgerTransaction, letters: Sequence[LetterId]) -> tuple[list[Claimed], list[LetterId]]:
    """Take letters for oneself; return them, and the ids that do not exist or are another's now."""
    claimed: list[Claimed] = []
    unknown: list[LetterId] = []
    for letter in letters:
        address = _address(letter)
        row = None
        if address is not None and tx.find(address[0]) is not None:
            row = tx.sql(
                "UPDATE letters SET claimed = ? WHERE queue = ? AND grp = ? AND number = ? AND claimed < ?"
                " RETURNING seq, letter",
                (tx.clock_ms + CLAIM_MS, *address, tx.clock_ms),
            ).fetchone()
        if address is None or row is None:
            unknown.append(letter)
        else:
            claimed.append(Claimed(*address, row[0], _decoder.decode(row[1])))
    return claimed, unknown


def unclaim(tx: LedgerTransaction, claimed: Sequence[Claimed]) -> None:
    """Let others have them."""
    tx.many(
        "UPDATE letters SET claimed = 0 WHERE queue = ? AND grp = ? AND number = ?",
        [(one.queue, one.group, one.number) for one in claimed],
    )


class Revived(msgspec.Struct, frozen=True):
    """A letter and the number it gets as a new copy."""

    claimed: Claimed
    seq: int
    epoch: str
    now_ms: int


def revive(tx: LedgerTransaction, claimed: Sequence[Claimed]) -> list[Revived]:
    """Give numbers to the copies that letters become; refuse all when one group has no room."""
    room: dict[tuple[str, str], list[Claimed]] = {}
    for one in claimed:
        room.setdefault((one.queue, one.group), []).append(one)
    for (queue, name), letters in room.items():
        book = tx.queue(queue)
        group, spec = book.group(name), book.spec
        if spec.max_size is not None and group.depth + len(letters) > spec.max_size:
            raise QueueFull(queue, name, "max_size", spec.max_size)
        size = sum(letter.stored.envelope.size for letter in letters)
        if spec.max_bytes is not None and group.bytes + size > spec.max_bytes:
            raise QueueFull(queue, name, "max_bytes", spec.max_bytes)
    revived = []
    for one in claimed:
        book = tx.queue(one.queue)
        book.publish_seq += 1
        envelope = one.stored.envelope
        now_ms = tx.now(book)
        tx.sql(
            "INSERT INTO copies (queue, grp, seq, id, size, place, turn, copy, copies, ready_at, attempt, failures,"
            " crashes) VALUES (?, ?, ?, ?, ?, ?, 0, 0, 1, ?, 0, 0, 0)",
            (one.queue, one.group, book.publish_seq, envelope.id, envelope.size, SENDING, now_ms),
        )
        revived.append(Revived(one, book.publish_seq, book.epoch, now_ms))
    return revived


def replayed(tx: LedgerTransaction, revived: Sequence[Revived], *, body: bool, actor: str | None = None) -> None:
    """Strike out letters that wait again."""
    rows: dict[tuple[str, str], list[Any]] = {}
    for one in revived:
        queue, group_name = one.claimed.queue, one.claimed.group
        book = tx.find(queue)
        group = book.groups.get(group_name) if book is not None else None
        if book is None or group is None:
            continue
        tx.sql(
            "DELETE FROM letters WHERE queue = ? AND grp = ? AND number = ?", (queue, group_name, one.claimed.number)
        )
        group.dead -= 1
        came = tx.sql(
            "UPDATE copies SET place = ? WHERE queue = ? AND grp = ? AND seq = ? AND place = ?",
            (WAITING, queue, group_name, one.seq, SENDING),
        )
        if not came.rowcount:
            continue  # a worker has it already; its arrival is in the journal
        envelope = one.claimed.stored.envelope
        group.depth += 1
        group.bytes += envelope.size
        row = replayed_row(
            envelope.id, one.seq, envelope.type, envelope.priority, 0, envelope.ordering_key, one.now_ms,
            envelope.deliver_at_ms, envelope.size, envelope.schedule_id, envelope.campaign,
            envelope.body if tx.keeps_body(book, auto=body) else None, one.claimed.seq, envelope.correlation_id,
            envelope.journal_attributes,
        )  # fmt: skip
        rows.setdefault((queue, group_name), []).append(row)
    for (queue, name), found in rows.items():
        book = tx.queue(queue)
        tx.journal(book, Event.REPLAYED, book.group(name), None, found, actor=actor)


def not_replayed(tx: LedgerTransaction, revived: Sequence[Revived]) -> None:
    """Forget copies that could not be sent, and let others have the letters."""
    for one in revived:
        tx.sql(
            "DELETE FROM copies WHERE queue = ? AND grp = ? AND seq = ? AND place = ?",
            (one.claimed.queue, one.claimed.group, one.seq, SENDING),
        )
    unclaim(tx, [one.claimed for one in revived])


def strike(
    tx: LedgerTransaction, claimed: Sequence[Claimed], target: QueueName | None, *, actor: str | None = None
) -> int:
    """Delete letters; `target` names the queue they went to."""
    rows: dict[tuple[str, str], list[Any]] = {}
    for one in claimed:
        struck = tx.sql(
            "DELETE FROM letters WHERE queue = ? AND grp = ? AND number = ?", (one.queue, one.group, one.number)
        )
        if struck.rowcount:
            rows.setdefault((one.queue, one.group), []).append(discarded_row(one.stored.envelope.id, one.seq, target))
    for (queue, name), found in rows.items():
        book = tx.queue(queue)
        group = book.group(name)
        group.dead -= len(found)
        tx.journal(book, Event.DISCARDED, group, None, found, actor=actor)
    return sum(map(len, rows.values()))


def to_feed(tx: LedgerTransaction, limit: int) -> dict[QueueName, list[LetterId]]:
    """Return the oldest letters of queues whose dead letter queue is declared and has groups, by that queue."""
    found: dict[QueueName, list[LetterId]] = {}
    for name in tx.names():
        book = tx.queue(name)
        target = tx.find(book.spec.dead_letter_queue) if book.spec.dead_letter_queue else None
        if target is None or not target.groups:
            continue
        for group in book.groups:
            rows = tx.sql(
                "SELECT number FROM letters WHERE queue = ? AND grp = ? AND claimed < ? ORDER BY number LIMIT ?",
                (name, group, tx.clock_ms, limit),
            )
            found.setdefault(target.name, []).extend(letter_id(name, group, row[0]) for row in rows)
    return {name: letters for name, letters in found.items() if letters}
