"""Dead letters of brokers that cannot list their own, in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from godwit.core.failure import FailureKind
from godwit.core.keeping import KeptLetter
from godwit.core.names import GroupName, QueueName
from godwit.store.sqlite.file import SqliteFile, sql


class SqliteLetters:
    """A `LetterKeeper` for the brokers of one machine."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def keep(self, letters: Sequence[KeptLetter]) -> None:
        rows = [_row(letter) for letter in letters]
        await self._file.write(
            "keeping dead letters", lambda connection: connection.executemany(sql("letters/keep"), rows)
        )

    async def page(
        self, name: QueueName, *, group: GroupName | None = None, after: str | None = None, limit: int = 100
    ) -> list[KeptLetter]:
        asked = {"name": name, "group": group, "after": after, "limit": limit}

        def look(connection: sqlite3.Connection) -> list[KeptLetter]:
            return [_letter(row) for row in connection.execute(sql("letters/page"), asked)]

        return await self._file.read("listing dead letters", look)

    async def fetch(self, ids: Sequence[str]) -> list[KeptLetter]:
        def look(connection: sqlite3.Connection) -> list[KeptLetter]:
            found = (connection.execute(sql("letters/fetch"), (one,)).fetchone() for one in ids)
            return [_letter(row) for row in found if row is not None]

        return await self._file.read("reading dead letters", look)

    async def remove(self, ids: Sequence[str]) -> list[str]:
        def write(connection: sqlite3.Connection) -> list[str]:
            return [one for one in ids if connection.execute(sql("letters/remove"), (one,)).fetchone() is None]

        return await self._file.write("removing dead letters", write)

    async def count(self) -> Mapping[tuple[QueueName, GroupName], int]:
        def look(connection: sqlite3.Connection) -> dict[tuple[QueueName, GroupName], int]:
            rows = connection.execute(sql("letters/count"))
            return {(row["queue_name"], row["consumer_group"]): row["letters"] for row in rows}

        return await self._file.read("counting dead letters", look)


def _row(letter: KeptLetter) -> tuple[Any, ...]:
    return (
        letter.id,
        letter.queue,
        letter.group,
        letter.dead_letter_queue,
        letter.message_id,
        letter.publish_seq,
        letter.type,
        letter.kind.value,
        letter.fingerprint,
        letter.attempt,
        letter.failures,
        letter.crashes,
        letter.dead_at_ms,
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
        dead_at_ms=row["dead_at"],
        body=row["body"],
    )
