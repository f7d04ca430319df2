"""Dead letters of brokers that cannot list their own, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from godwit.core.clock import from_ms, to_ms
from godwit.core.failure import FailureKind
from godwit.core.keeping import KeptLetter
from godwit.core.names import GroupName, QueueName
from godwit.store.postgres.database import PostgresDatabase, sql


class PostgresLetters:
    """A `LetterKeeper` for every broker that shares the database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def keep(self, letters: Sequence[KeptLetter]) -> None:
        if letters:
            columns = zip(*map(_row, letters), strict=True)
            async with self._database.connection("keeping dead letters") as connection:
                await connection.execute(sql("letters/keep"), *columns)

    async def page(
        self, name: QueueName, *, group: GroupName | None = None, after: str | None = None, limit: int = 100
    ) -> list[KeptLetter]:
        rows = await self._database.fetch("listing dead letters", "letters/page", name, group, after, limit)
        return [_letter(row) for row in rows]

    async def fetch(self, ids: Sequence[str]) -> list[KeptLetter]:
        return [_letter(row) for row in await self._database.fetch("reading dead letters", "letters/fetch", list(ids))]

    async def remove(self, ids: Sequence[str]) -> list[str]:
        rows = await self._database.fetch("removing dead letters", "letters/remove", list(ids))
        gone = {row["letter_id"] for row in rows}
        return [one for one in ids if one not in gone]

    async def count(self) -> Mapping[tuple[QueueName, GroupName], int]:
        rows = await self._database.fetch("counting dead letters", "letters/count")
        return {(row["queue_name"], row["consumer_group"]): row["letters"] for row in rows}


def _row(letter: KeptLetter) -> tuple[Any, ...]:
    return (
        letter.id,
        letter.queue,
        letter.group,
        letter.dead_letter_queue,
        letter.message_id,
        letter.publish_seq,
        letter.type,
        letter.kind,
        letter.fingerprint,
        letter.attempt,
        letter.failures,
        letter.crashes,
        from_ms(letter.dead_at_ms),
        letter.body,
    )


def _letter(row: Any) -> KeptLetter:
    return KeptLetter(
        id=row["letter_id"],
        queue=row["queue_name"],
        group=row["consumer_group"],
        dead_letter_queue=row["dead_letter_queue"],
        message_id=row["message_id"],
        publish_seq=row["publish_seq"],
        type=row["type"],
        kind=FailureKind(row["kind"]),
        fingerprint=row["error_fingerprint"],
        attempt=row["attempt"],
        failures=row["failures"],
        crashes=row["crashes"],
        dead_at_ms=to_ms(row["dead_at"]),
        body=row["body"],
    )
