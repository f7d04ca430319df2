"""The journal of brokers that cannot keep one, in a SQLite file: numbered in the transaction that writes it."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Mapping, Sequence

from godwit.core.errors import JournalLost
from godwit.core.journal.external_journal import JournalStep, KeptShard
from godwit.core.journal.shards import Position
from godwit.store.chunks import cut, packed, start_of
from godwit.store.sqlite.file import SqliteFile, sql


class SqliteJournal:
    """A `JournalWriter` for the brokers of one machine."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def append(self, shard: str, steps: Sequence[JournalStep]) -> None:
        stored = [packed(step) for step in steps if step.rows]

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(sql("journal/make_shard"), (shard, secrets.token_hex(8)))
            seq, at = connection.execute(sql("journal/last"), (shard,)).fetchone()
            size = 0
            for step in stored:
                seq, at = seq + step.n, max(at, step.at_ms)
                size += len(step.header) + len(step.rows)
                connection.execute(sql("journal/append"), (shard, seq, step.n, at, step.header, step.rows))
            connection.execute(sql("journal/advance"), (seq, at, size, shard))

        if stored:
            await self._file.write("writing the journal", write)

    async def shards(self) -> Mapping[str, KeptShard]:
        def look(connection: sqlite3.Connection) -> dict[str, KeptShard]:
            return {row["shard"]: _kept(row) for row in connection.execute(sql("journal/shards"), {"shard": None})}

        return await self._file.read("reading the journal", look)

    async def read(self, shard: str, after: Position | None = None, *, limit: int = 1_000) -> list[bytes]:
        def look(connection: sqlite3.Connection) -> list[bytes]:
            row = connection.execute(sql("journal/shards"), {"shard": shard}).fetchone()
            seen = start_of(shard, _kept(row) if row is not None else None, after)
            steps = connection.execute(sql("journal/read"), (shard, seen))
            return cut(map(dict, steps), row["epoch"], seen, limit)

        return await self._file.read("reading the journal", look)

    async def trim(self, shard: str, *, before_ms: int, max_bytes: int) -> int:
        def write(connection: sqlite3.Connection) -> int:
            rows = 0
            found = connection.execute(sql("journal/trimming"), {"shard": shard}).fetchone()
            if found is None:
                return 0
            size, read_by_all, unread, first_seq = found["bytes"], found["read_by_all"], 0, found["first_seq"]
            gone = []
            for step in connection.execute(sql("journal/read"), (shard, 0)):
                old = step["at"] < before_ms and step["last_seq"] <= read_by_all
                if size <= max_bytes and not old:
                    break
                gone.append((shard, step["last_seq"]))
                size -= len(step["header"]) + len(step["rows"])
                rows += step["n"]
                unread += max(0, step["last_seq"] - max(read_by_all, step["last_seq"] - step["n"]))
                first_seq = step["last_seq"] + 1
            connection.executemany(sql("journal/drop"), gone)
            connection.execute(sql("journal/trimmed"), (size, unread, first_seq, shard))
            return rows

        return await self._file.write("trimming the journal", write, durable=False)

    async def commit(self, reader: str, shard: str, position: Position) -> None:
        def write(connection: sqlite3.Connection) -> bool:
            row = connection.execute(sql("journal/shards"), {"shard": shard}).fetchone()
            if row is None or row["epoch"] != position.epoch:
                return False
            connection.execute(sql("journal/commit"), (reader, shard, position.epoch, position.seq))
            return True

        if not await self._file.write("committing a reader", write, durable=False):
            raise JournalLost(shard, f"epoch {position.epoch}", "another journal, or nothing")

    async def committed(self, reader: str) -> Mapping[str, Position]:
        def look(connection: sqlite3.Connection) -> dict[str, Position]:
            rows = connection.execute(sql("journal/committed"), (reader,))
            return {row["shard"]: Position(row["epoch"], row["seq"]) for row in rows}

        return await self._file.read("reading the journal", look)

    async def forget(self, reader: str) -> None:
        await self._file.write(
            "forgetting a reader",
            lambda connection: connection.execute(sql("journal/forget"), (reader,)),
            durable=False,
        )


def _kept(row: sqlite3.Row) -> KeptShard:
    return KeptShard(
        epoch=row["epoch"],
        first_seq=row["first_seq"],
        last_seq=row["last_seq"],
        bytes=row["bytes"],
        dropped=row["dropped"],
    )
