"""The outbox in a SQLite file: written by applications in their own transactions on that file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms, milliseconds
from godwit.core.messages.envelope import Envelope
from godwit.store.effects import OutboxBacklog, Waiting, packed_envelope, unpacked_envelope
from godwit.store.sqlite.application import inside
from godwit.store.sqlite.file import SqliteFile, sql


class SqliteOutbox:
    """Messages on their way to the broker."""

    def __init__(self, file: SqliteFile, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._file = file
        self._clock = clock

    async def put(self, connection: Any, envelopes: Sequence[Envelope]) -> None:
        async with inside(connection, self._file, "outbox", "writing to the outbox") as transaction:
            rows = [
                (envelope.id, envelope.queue, envelope.ordering_key, packed_envelope(envelope))
                for envelope in envelopes
            ]
            await transaction.executemany(sql("outbox/put"), rows)

    async def claim(self, *, hold: timedelta, limit: int) -> list[Waiting]:
        now = self._clock.now_ms()

        def write(connection: sqlite3.Connection) -> list[Waiting]:
            rows = connection.execute(sql("outbox/due"), {"now": now, "limit": limit}).fetchall()
            claims = [(now + milliseconds(hold), now, row["number"]) for row in rows]
            connection.executemany(sql("outbox/claim"), claims)
            return [_waiting(row) for row in rows]

        first = {"now": now, "limit": 1}
        if await self._file.read("reading the outbox", lambda c: c.execute(sql("outbox/due"), first).fetchone()):
            return await self._file.write("reading the outbox", write)
        return []  # looking costs no writer's turn

    async def forwarded(self, numbers: Sequence[int]) -> None:
        rows = [(number,) for number in numbers]
        await self._file.write("emptying the outbox", lambda c: c.executemany(sql("outbox/forwarded"), rows))

    async def postpone(self, number: int, *, delay: timedelta, error: str) -> None:
        facts = (self._clock.now_ms() + milliseconds(delay), error, number)
        await self._file.write("postponing in the outbox", lambda c: c.execute(sql("outbox/postpone"), facts))

    async def backlog(self) -> OutboxBacklog:
        row = await self._file.read("counting the outbox", lambda c: c.execute(sql("outbox/backlog")).fetchone())
        return OutboxBacklog(row["waiting"], None if row["oldest"] is None else from_ms(row["oldest"]))


def _waiting(row: sqlite3.Row) -> Waiting:
    before = row["tried_before"]
    envelope = unpacked_envelope(row["envelope"])
    return Waiting(row["number"], envelope, row["tries"] + 1, None if before is None else from_ms(before))
