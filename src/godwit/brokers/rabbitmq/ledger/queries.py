"""The journal and the shared values in the ledger, and what can be read without changing anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from godwit.brokers.arguments import lives_until_ms
from godwit.brokers.contract import GroupStats, QueueStats, ShardEnds, SharedEntry, Snapshot
from godwit.brokers.rabbitmq.ledger.publish import waiting_later
from godwit.brokers.rabbitmq.ledger.transaction import DEAD, LEASED, SENDING, LedgerTransaction
from godwit.core.clock import milliseconds
from godwit.core.errors import JournalLost
from godwit.core.journal.projection import CopyState
from godwit.core.journal.shards import Position, shard_name
from godwit.core.names import QueueName, is_name
from godwit.core.queues import QueueSpec

REMOVED_SHARDS: Final = 20
_SHARD = "SELECT name, epoch, seq, journal_bytes, journal_dropped, declared, at_ms FROM queues"


def stats(tx: LedgerTransaction) -> list[QueueStats]:
    """Say how much every queue holds."""
    found = []
    for name in tx.names():
        book = tx.queue(name)
        groups = []
        for group in book.groups.values():
            delayed = waiting_later(tx, group, tx.clock_ms)
            full = _reached(group.depth, book.spec.max_size) or _reached(group.bytes, book.spec.max_bytes)
            groups.append(
                GroupStats(
                    name=group.name,
                    ready=max(group.depth - group.leased - delayed, 0),
                    blocked=0,
                    delayed=delayed,
                    leased=group.leased,
                    dead=group.dead,
                    bytes=group.bytes,
                    leased_bytes=group.leased_bytes,
                    dropped=group.dropped,
                    full=full,
                )
            )
        found.append(QueueStats(name=name, published=book.published, duplicates=book.duplicates, groups=tuple(groups)))
    return found


def _reached(value: int, limit: int | None) -> bool:
    return limit is not None and value >= limit


def snapshot(tx: LedgerTransaction, name: QueueName) -> Snapshot:
    """List a queue's copies as of the newest row of its journal."""
    book = tx.queue(name)
    copies = []
    for row in tx.sql(
        "SELECT grp, seq, id, place, ready_at, token, lease_until, attempt, failures, crashes FROM copies"
        " WHERE queue = ? AND place != ?",
        (name, SENDING),
    ):
        group, seq, message_id, place, ready_at, token, lease_until, *counters = row
        state = "leased" if place == LEASED else "dead" if place == DEAD else "waiting"
        copies.append(_copy(name, group, seq, message_id, state, ready_at, token, lease_until, *counters))
    return Snapshot(position=Position(book.epoch, book.seq), copies=(*copies, *_dead(tx, name)))


def _dead(tx: LedgerTransaction, name: QueueName) -> list[CopyState]:
    from godwit.brokers.rabbitmq.ledger.dead_letters import Stored, _decoder

    found = []
    for group, seq, message_id, data in tx.sql("SELECT grp, seq, id, letter FROM letters WHERE queue = ?", (name,)):
        stored: Stored = _decoder.decode(data)
        header = stored.header
        counters = (header.attempt, header.failures, header.crashes)
        found.append(_copy(name, group, seq, message_id, "dead", header.ready_at_ms, None, None, *counters))
    return found


def _copy(
    queue: str,
    group: str,
    seq: int,
    message_id: str,
    state: str,
    ready_at: int,
    token: str | None,
    lease_until: int | None,
    attempt: int,
    failures: int,
    crashes: int,
) -> CopyState:
    return CopyState(
        queue=queue,
        group=group,
        publish_seq=seq,
        message_id=message_id,
        state=state,
        ready_at=ready_at,
        delivery_id=token,
        lease_until=lease_until,
        attempt=attempt,
        failures=failures,
        crashes=crashes,
    )


# The journal


def shards(tx: LedgerTransaction) -> Mapping[str, ShardEnds]:
    """Say what each queue's journal holds."""
    return {
        shard_name(name): ShardEnds(
            epoch=epoch, first_seq=_first(tx, name, seq), last_seq=seq, bytes=size, dropped=dropped
        )
        for name, epoch, seq, size, dropped, *_ in tx.sql(_SHARD).fetchall()
    }


def _first(tx: LedgerTransaction, queue: str, last: int) -> int:
    row = tx.sql("SELECT last_seq - n + 1 FROM chunks WHERE queue = ? ORDER BY last_seq LIMIT 1", (queue,)).fetchone()
    return int(row[0]) if row is not None else last + 1


def read(tx: LedgerTransaction, shard: str, after: Position | None, limit: int) -> list[bytes]:
    """Return chunks with rows beyond `after`, up to `limit` rows but at least one chunk."""
    name = shard.removesuffix("#0")
    row = tx.sql(f"{_SHARD} WHERE name = ?", (name,)).fetchone() if is_name(name) else None
    if row is None:
        if after is None:
            return []
        raise JournalLost(shard, f"what follows row {after.seq:,} of epoch {after.epoch}", "nothing")
    _, epoch, last, *_ = row
    first = _first(tx, name, last)
    if after is not None and (after.epoch != epoch or not first - 1 <= after.seq <= last):
        asked = f"what follows row {after.seq:,} of epoch {after.epoch}"
        raise JournalLost(shard, asked, f"rows {first:,} to {last:,} of epoch {epoch}")
    seen = first - 1 if after is None else after.seq
    found: list[bytes] = []
    rows = 0
    for last_seq, count, chunk in tx.sql(
        "SELECT last_seq, n, chunk FROM chunks WHERE queue = ? AND last_seq > ? ORDER BY last_seq", (name, seen)
    ):
        rows += last_seq - max(seen, last_seq - count)
        if found and rows > limit:
            break
        found.append(chunk)
    return found


def trim(tx: LedgerTransaction, *, removed: int = -1) -> int:
    """Drop what is too old and read by all, or more than the size limit allows; return rows dropped.

    With `removed`, only so many journals of removed queues are looked at, any of them: it costs the same however many
    there are.
    """
    dropped = 0
    shards = tx.sql(f"{_SHARD} WHERE declared").fetchall()
    shards += tx.sql(f"{_SHARD} WHERE NOT declared AND journal_bytes > 0 ORDER BY random() LIMIT ?", (removed,))
    for name, _, seq, size, _, declared, at_ms in shards:
        book = tx.find(name) if declared else None
        spec = book.spec if book is not None else QueueSpec(name=name)
        now_ms = max(tx.clock_ms, at_ms)
        dropped += _trim(tx, name, seq, size, spec, now_ms)
        if book is not None:
            # The counters were changed beside the book: load it anew.
            numbers = tx.sql("SELECT journal_bytes, journal_dropped FROM queues WHERE name = ?", (name,)).fetchone()
            book.journal_bytes, book.journal_dropped = numbers
    return dropped


def _trim(tx: LedgerTransaction, name: str, seq: int, size: int, spec: QueueSpec, now_ms: int) -> int:
    keep_from_ms = now_ms - milliseconds(spec.journal_keep)
    found = tx.sql("SELECT min(seq) FROM readers WHERE shard = ?", (shard_name(name),)).fetchone()[0]
    read_by_all = seq if found is None else found
    rows = unread = upto = 0
    for last, count, at_ms, length in tx.sql(
        "SELECT last_seq, n, at_ms, length(chunk) FROM chunks WHERE queue = ? ORDER BY last_seq", (name,)
    ):
        if size <= spec.journal_max_bytes and (at_ms >= keep_from_ms or last > read_by_all):
            break
        size -= length
        rows += count
        upto = last
        if last > read_by_all:
            unread += last - max(read_by_all, last - count)
    if rows:
        tx.sql("DELETE FROM chunks WHERE queue = ? AND last_seq <= ?", (name, upto))
        tx.sql(
            "UPDATE queues SET journal_bytes = ?, journal_dropped = journal_dropped + ? WHERE name = ?",
            (size, unread, name),
        )
    return rows


def commit(tx: LedgerTransaction, reader: str, shard: str, position: Position) -> None:
    """Register how far a reader has got."""
    tx.sql("INSERT OR REPLACE INTO readers VALUES (?, ?, ?, ?)", (reader, shard, position.epoch, position.seq))


def committed(tx: LedgerTransaction, reader: str) -> Mapping[str, Position]:
    """Return how far a reader has got, by shard."""
    rows = tx.sql("SELECT shard, epoch, seq FROM readers WHERE reader = ?", (reader,))
    return {shard: Position(epoch, seq) for shard, epoch, seq in rows}


def forget(tx: LedgerTransaction, reader: str) -> None:
    """Release a reader's hold."""
    tx.sql("DELETE FROM readers WHERE reader = ?", (reader,))


# Shared values


def get(tx: LedgerTransaction, key: str) -> SharedEntry | None:
    """Return a value that is not past its time."""
    row = tx.sql(
        "SELECT value, version FROM shared WHERE key = ? AND (until IS NULL OR until > ?)", (key, tx.clock_ms)
    ).fetchone()
    return SharedEntry(*row) if row is not None else None


def put(tx: LedgerTransaction, key: str, value: bytes, expected: int | None, ttl: timedelta | None) -> int | None:
    """Write when the present version is the expected one; return the new version, or None."""
    present = get(tx, key)
    if (present.version if present is not None else None) != expected:
        return None
    tx.sql("INSERT INTO counters VALUES ('shared', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1")
    version = int(tx.sql("SELECT value FROM counters WHERE name = 'shared'").fetchone()[0])
    until = lives_until_ms(ttl, tx.clock_ms)
    tx.sql("INSERT OR REPLACE INTO shared VALUES (?, ?, ?, ?)", (key, value, version, until))
    return version


def scan(tx: LedgerTransaction, prefix: str, after: str, limit: int | None) -> Mapping[str, SharedEntry]:
    """Return the values whose key begins with `prefix`, by their keys: those beyond `after`, at most `limit`."""
    rows = tx.sql(
        "SELECT key, value, version FROM shared WHERE key >= ?1 AND key < ?1 || char(0x10ffff) AND key > ?2"
        " AND (until IS NULL OR until > ?3) ORDER BY key LIMIT ?4",
        (prefix, after, tx.clock_ms, -1 if limit is None else limit),
    )
    return {key: SharedEntry(value, version) for key, value, version in rows}


def clear(tx: LedgerTransaction, first: str, until: str) -> None:
    """Remove the values from the key `first` on, up to `until` without it."""
    tx.sql("DELETE FROM shared WHERE key >= ? AND key < ?", (first, until))


def delete(tx: LedgerTransaction, key: str) -> None:
    """Remove a value."""
    tx.sql("DELETE FROM shared WHERE key = ?", (key,))


def sweep(tx: LedgerTransaction) -> None:
    """Forget ids past their window and values past their time."""
    tx.sql("DELETE FROM ids WHERE until <= ?", (tx.clock_ms,))
    tx.sql("DELETE FROM shared WHERE until IS NOT NULL AND until <= ?", (tx.clock_ms,))
