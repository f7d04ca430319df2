"""The ledger of effects in PostgreSQL; the server's clock decides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from godwit.store.bodies import json_text
from godwit.store.effects import EffectClaim, EffectOutcome
from godwit.store.postgres.application import transaction_of
from godwit.store.postgres.database import PostgresDatabase, sql


class PostgresLedger:
    """Keys of effects, shared by all processes."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def claim(self, key: str, *, holder: str, hold: timedelta, ttl: timedelta) -> EffectClaim:
        async with self._database.connection("claiming a key") as connection:
            while True:
                if await connection.fetchrow(sql("ledger/claim"), key, holder, hold, ttl) is not None:
                    return EffectClaim(outcome=EffectOutcome.WON)
                if (found := await _look(connection, key)) is not None:
                    return found

    async def finish(self, key: str, *, holder: str, ttl: timedelta, result: bytes | None = None) -> bool:
        text = json_text(result, careful=True)  # refused here, the effect would be made again
        row = await self._database.fetchrow("finishing a key", "ledger/finish", key, holder, text, ttl)
        return row is not None

    async def keep(self, key: str, *, holder: str, to: str, hold: timedelta, ttl: timedelta) -> bool:
        return await self._database.fetchrow("keeping a key", "ledger/keep", key, holder, to, hold, ttl) is not None

    async def release(self, key: str, *, holder: str) -> None:
        await self._database.fetch("releasing a key", "ledger/release", key, holder)

    async def finish_within(self, connection: Any, key: str, *, holder: str, ttl: timedelta) -> EffectClaim:
        with self._database.translating("finishing a key", theirs=True):
            transaction = await transaction_of(connection)
            if await transaction.fetchrow(sql("ledger/finish_at_once"), key, holder, ttl) is not None:
                return EffectClaim(outcome=EffectOutcome.WON)
            return await _look(transaction, key) or EffectClaim(outcome=EffectOutcome.HELD)

    async def sweep(self, *, limit: int = 10_000) -> int:
        return len(await self._database.fetch("sweeping the ledger", "ledger/sweep", limit))


async def _look(connection: Any, key: str) -> EffectClaim | None:
    """Return what is known of a key; None when it was forgotten a moment ago."""
    row = await connection.fetchrow(sql("ledger/look"), key)
    if row is None:
        return None
    if row["status"] == "done":
        return EffectClaim(outcome=EffectOutcome.DONE, result=None if row["result"] is None else row["result"].encode())
    return EffectClaim(outcome=EffectOutcome.HELD, held_for=row["held_for"])
