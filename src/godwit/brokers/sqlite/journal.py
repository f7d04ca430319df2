"""The journal as rows: reading, trimming, readers' positions."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

from godwit.brokers.contract import ShardEnds
from godwit.brokers.sqlite.layout.arrival_rows import cook, decode_recipe
from godwit.brokers.sqlite.layout.rows import queue_spec
from godwit.brokers.sqlite.layout.runs import Runs
from godwit.brokers.sqlite.layout.step import SHARD_BITS, SqliteStep
from godwit.core.errors import JournalLost
from godwit.core.journal.shards import Position, shard_parts
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec

SELECT_SHARD: Final = "SELECT id, epoch, first_seq, seq, bytes, dropped FROM broker_shards WHERE name = ?"
SELECT_CHUNKS: Final = (
    "SELECT last_seq, n, at, recipe, chunk FROM broker_journal WHERE place > ? AND place <= ? ORDER BY place"
)
SELECT_REMOVED: Final = (
    "SELECT id, name, at FROM broker_shards WHERE id > ? AND bytes > 0 "
    "AND id NOT IN (SELECT shard_id FROM broker_queues) ORDER BY id LIMIT ?"
)
REMOVED_SHARDS: Final = 20
TRIMMED_TOGETHER: Final = 500


def shards(connection: sqlite3.Connection) -> Mapping[str, ShardEnds]:
    """Say what each shard holds."""
    rows = connection.execute("SELECT name, epoch, first_seq, seq, bytes, dropped FROM broker_shards ORDER BY id")
    return {
        name: ShardEnds(epoch=epoch, first_seq=first, last_seq=last, bytes=size, dropped=dropped)
        for name, epoch, first, last, size, dropped in rows
    }


def read(connection: sqlite3.Connection, runs: Runs, shard: str, after: Position | None, limit: int) -> list[bytes]:
    """Return chunks with rows beyond `after`, up to `limit` rows but at least one chunk."""
    row = connection.execute(SELECT_SHARD, (shard,)).fetchone() if shard_parts(shard) is not None else None
    if row is None:
        raise JournalLost(shard, "anything", "nothing: no queue of that name was ever declared")
    shard_id, epoch, first_seq, last_seq, _, _ = row
    if after is not None and (after.epoch != epoch or not first_seq - 1 <= after.seq <= last_seq):
        asked = f"what follows row {after.seq:,} of epoch {after.epoch}"
        raise JournalLost(shard, asked, f"rows {first_seq:,} to {last_seq:,} of epoch {epoch}")
    seen = after.seq if after is not None else first_seq - 1
    found: list[bytes] = []
    rows = 0
    places = (shard_id << SHARD_BITS | seen, shard_id << SHARD_BITS | last_seq)
    for last, n, at, recipe, chunk in connection.execute(SELECT_CHUNKS, places):
        rows += last - max(seen, last - n)
        if found and rows > limit:
            break
        found.append(cook(chunk, epoch, last, at, runs.read) if recipe else chunk)
        if rows >= limit:
            break
    return found


class Trimmer:
    """Drops what the journals need not keep, a portion each time.

    A removed queue's journal is kept by the default rules. With `removed`, so many of them are looked at each time, in
    turn: however many queues were removed, it costs the same.
    """

    def __init__(self, *, removed: int | None) -> None:
        self._removed = removed
        self._shard_id = 0

    def step(self, work: SqliteStep) -> int:
        """Drop a portion; return the number of rows."""
        live = work.execute("SELECT s.id, s.at, q.spec FROM broker_queues q JOIN broker_shards s ON s.id = q.shard_id")
        shards = [(shard_id, at, queue_spec(spec)) for shard_id, at, spec in live.fetchall()]
        limit = -1 if self._removed is None else self._removed
        gone = work.execute(SELECT_REMOVED, (self._shard_id, limit)).fetchall()
        self._shard_id = gone[-1][0] if len(gone) == limit else 0
        for shard_id, name, at in gone:
            shards.append((shard_id, at, QueueSpec(name=QueueName(name.partition("#")[0]))))
        clock_ms = work.clock.now_ms()
        return sum(_trim(work, shard_id, spec, max(at, clock_ms)) for shard_id, at, spec in shards)


def _trim(work: SqliteStep, shard_id: int, spec: QueueSpec, now_ms: int) -> int:
    """Drop chunks that are too old and read by all, or more than the size limit allows; return rows dropped.

    At most `TRIMMED_TOGETHER` chunks: call it until it drops nothing.
    """
    keep_from_ms = now_ms - spec.journal_keep.total_seconds() * 1000
    size, seq = work.execute("SELECT bytes, seq FROM broker_shards WHERE id = ?", (shard_id,)).fetchone()
    (read_by_all,) = work.execute("SELECT min(seq) FROM broker_readers WHERE shard_id = ?", (shard_id,)).fetchone()
    read_by_all = seq if read_by_all is None else read_by_all
    rows = unread = first_seq = 0
    chunks = work.execute(
        "SELECT place, last_seq, n, at, bytes, recipe, CASE WHEN recipe THEN chunk END FROM broker_journal "
        "WHERE place > ? AND place <= ? ORDER BY place LIMIT ?",
        (shard_id << SHARD_BITS, (shard_id + 1 << SHARD_BITS) - 1, TRIMMED_TOGETHER),
    )
    gone: list[tuple[int]] = []
    released: list[tuple[int, int]] = []
    for place, last_seq, n, at, chunk_bytes, recipe, chunk in chunks:
        if size <= spec.journal_max_bytes and (at >= keep_from_ms or last_seq > read_by_all):
            break
        gone.append((place,))
        size -= chunk_bytes
        rows += n
        unread += max(0, last_seq - max(read_by_all, last_seq - n))
        first_seq = last_seq + 1
        if recipe:
            released += [(run, 1) for run in decode_recipe(chunk).runs]
    chunks.close()
    if gone:
        work.executemany("DELETE FROM broker_journal WHERE place = ?", gone)
        work.runs.release(released, holds=True)
        work.execute(
            "UPDATE broker_shards SET bytes = ?, first_seq = ?, dropped = dropped + ? WHERE id = ?",
            (size, first_seq, unread, shard_id),
        )
    return rows


def commit(work: SqliteStep, reader: str, shard: str, position: Position) -> None:
    """Register how far `reader` has got."""
    row = work.execute(SELECT_SHARD, (shard,)).fetchone() if shard_parts(shard) is not None else None
    if row is None or row[1] != position.epoch:
        raise JournalLost(shard, f"epoch {position.epoch}", "another journal" if row is not None else "nothing")
    work.execute("INSERT OR REPLACE INTO broker_readers VALUES (?, ?, ?)", (reader, row[0], position.seq))


def committed(connection: sqlite3.Connection, reader: str) -> Mapping[str, Position]:
    """Return how far `reader` has got."""
    rows = connection.execute(
        "SELECT s.name, s.epoch, r.seq FROM broker_readers r JOIN broker_shards s ON s.id = r.shard_id "
        "WHERE r.reader = ?",
        (reader,),
    )
    return {name: Position(epoch, seq) for name, epoch, seq in rows}


def forget(work: SqliteStep, reader: str) -> None:
    """Release a reader's hold."""
    work.execute("DELETE FROM broker_readers WHERE reader = ?", (reader,))
