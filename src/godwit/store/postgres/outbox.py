"""The outbox in PostgreSQL: written by applications in their own transactions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from godwit.core.messages.envelope import Envelope
from godwit.store.effects import OutboxBacklog, Waiting, packed_envelope, unpacked_envelope
from godwit.store.postgres.application import transaction_of
from godwit.store.postgres.database import PostgresDatabase, sql


class PostgresOutbox:
    """Messages on their way to the broker."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def put(self, connection: Any, envelopes: Sequence[Envelope]) -> None:
        ids, queues = [envelope.id for envelope in envelopes], [envelope.queue for envelope in envelopes]
        keys, packed = (
            [envelope.ordering_key for envelope in envelopes],
            [packed_envelope(envelope) for envelope in envelopes],
        )
        with self._database.translating("writing to the outbox", theirs=True):
            transaction = await transaction_of(connection)
            await transaction.execute(sql("outbox/put"), ids, queues, keys, packed)

    async def claim(self, *, hold: timedelta, limit: int) -> list[Waiting]:
        async with self._database.transaction("reading the outbox") as connection:
            await connection.execute(sql("outbox/turn"))
            rows = await connection.fetch(sql("outbox/claim"), hold, limit)
        found = [
            Waiting(row["number"], unpacked_envelope(row["envelope"]), row["tries"], row["tried_before"])
            for row in rows
        ]
        return sorted(found, key=lambda one: one.number)

    async def forwarded(self, numbers: Sequence[int]) -> None:
        await self._database.fetch("emptying the outbox", "outbox/forwarded", list(numbers))

    async def postpone(self, number: int, *, delay: timedelta, error: str) -> None:
        await self._database.fetch("postponing in the outbox", "outbox/postpone", number, delay, error)

    async def backlog(self) -> OutboxBacklog:
        row = await self._database.fetchrow("counting the outbox", "outbox/backlog")
        return OutboxBacklog(row["waiting"], row["oldest"]) if row is not None else OutboxBacklog(0, None)
