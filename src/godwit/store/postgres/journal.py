"""The journal of brokers that cannot keep one, in PostgreSQL.

Writers insert and never wait for each other. The first reader gives numbers to what was written, in the order of
transactions and only below the oldest one still running: a slow writer's steps are numbered late, never skipped.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import asyncpg

from godwit.core.errors import JournalLost
from godwit.core.journal.external_journal import JournalStep, KeptShard
from godwit.core.journal.shards import Position
from godwit.store.chunks import cut, packed, start_of
from godwit.store.postgres.database import PostgresDatabase, sql
from godwit.store.postgres.day_partitions import DayPartitions

NUMBERED_AT_ONCE: Final = 5_000


class PostgresJournal:
    """A `JournalWriter` for every broker that shares the database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._days = DayPartitions("journal_chunks")
        self._shards: set[str] = set()

    async def append(self, shard: str, steps: Sequence[JournalStep]) -> None:
        stored = [packed(step) for step in steps if step.rows]
        if not stored:
            return
        async with self._database.connection("writing the journal") as connection:
            if shard not in self._shards:
                await connection.execute(sql("journal/make_shard"), shard, secrets.token_hex(8))
                self._shards.add(shard)
            await connection.execute(sql("journal/append"), shard, *zip(*stored, strict=True))

    async def shards(self) -> Mapping[str, KeptShard]:
        async with self._database.connection("reading the journal") as connection:
            await self._number(connection, None)
            return {row["shard"]: _kept(row) for row in await connection.fetch(sql("journal/shards"), None)}

    async def read(self, shard: str, after: Position | None = None, *, limit: int = 1_000) -> list[bytes]:
        async with self._database.connection("reading the journal") as connection:
            await self._number(connection, shard)
            row = await connection.fetchrow(sql("journal/shards"), shard)
            kept = _kept(row) if row is not None else None
            seen = start_of(shard, kept, after)
            steps = await connection.fetch(sql("journal/read"), shard, seen, limit)
        return cut(steps, row["epoch"], seen, limit)

    async def _number(self, connection: asyncpg.Connection, shard: str | None) -> None:
        """Give numbers to what was written and can no longer be overtaken, in one shard or in all."""
        for row in await connection.fetch(sql("journal/waiting"), shard):
            await self._days.ensure_around(connection)
            async with connection.transaction():
                found = await connection.fetchrow(sql("journal/lock_shard"), row["shard"])
                # A statement of its own: its snapshot is younger than the lock, so no numbered step is seen twice.
                new = await connection.fetchrow(sql("journal/number"), row["shard"], *found.values(), NUMBERED_AT_ONCE)
                if new["last_seq"] is not None:
                    await connection.execute(sql("journal/advance"), row["shard"], *new.values())

    async def trim(self, shard: str, *, before_ms: int, max_bytes: int) -> int:
        async with self._database.transaction("trimming the journal") as connection:
            await connection.fetchrow(sql("journal/lock_shard"), shard)
            gone = await connection.fetchval(sql("journal/trim"), shard, before_ms, max_bytes)
        await self._database.fetch("trimming the journal", "journal/drop_empty_days")
        return int(gone or 0)

    async def commit(self, reader: str, shard: str, position: Position) -> None:
        done = await self._database.fetchrow(
            "committing a reader", "journal/commit", reader, shard, position.epoch, position.seq
        )
        if done is None:
            raise JournalLost(shard, f"epoch {position.epoch}", "another journal, or nothing")

    async def committed(self, reader: str) -> Mapping[str, Position]:
        rows = await self._database.fetch("reading the journal", "journal/committed", reader)
        return {row["shard"]: Position(row["epoch"], row["seq"]) for row in rows}

    async def forget(self, reader: str) -> None:
        await self._database.fetch("forgetting a reader", "journal/forget", reader)


def _kept(row: asyncpg.Record) -> KeptShard:
    return KeptShard(
        epoch=row["epoch"],
        first_seq=row["first_seq"],
        last_seq=row["last_seq"],
        bytes=row["bytes"],
        dropped=row["dropped"],
    )
