"""The ledger of effects in a SQLite file."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import Any

from godwit.core.clock import SYSTEM_CLOCK, Clock, milliseconds
from godwit.store.effects import EffectClaim, EffectOutcome
from godwit.store.sqlite.application import inside
from godwit.store.sqlite.file import SqliteFile, sql


class SqliteLedger:
    """Keys of effects, shared by the processes of one machine."""

    def __init__(self, file: SqliteFile, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._file = file
        self._clock = clock

    async def claim(self, key: str, *, holder: str, hold: timedelta, ttl: timedelta) -> EffectClaim:
        def write(connection: sqlite3.Connection) -> EffectClaim:
            now = self._clock.now_ms()
            facts = {
                "key": key,
                "holder": holder,
                "now": now,
                "claimed_until": now + milliseconds(hold),
                "expires_at": now + milliseconds(hold + ttl),
            }
            return _claimed(connection, "ledger/claim", facts)

        return await self._file.write("claiming a key", write)

    async def finish(self, key: str, *, holder: str, ttl: timedelta, result: bytes | None = None) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            now = self._clock.now_ms()
            facts = {
                "key": key,
                "holder": holder,
                "result": None if result is None else result.decode(),
                "now": now,
                "expires_at": now + milliseconds(ttl),
            }
            return connection.execute(sql("ledger/finish"), facts).rowcount == 1

        return await self._file.write("finishing a key", write)

    async def keep(self, key: str, *, holder: str, to: str, hold: timedelta, ttl: timedelta) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            now = self._clock.now_ms()
            facts = {
                "key": key,
                "holder": holder,
                "to": to,
                "now": now,
                "claimed_until": now + milliseconds(hold),
                "expires_at": now + milliseconds(hold + ttl),
            }
            return connection.execute(sql("ledger/keep"), facts).rowcount == 1

        return await self._file.write("keeping a key", write)

    async def release(self, key: str, *, holder: str) -> None:
        facts = {"key": key, "holder": holder}
        await self._file.write("releasing a key", lambda connection: connection.execute(sql("ledger/release"), facts))

    async def finish_within(self, connection: Any, key: str, *, holder: str, ttl: timedelta) -> EffectClaim:
        async with inside(connection, self._file, "idempotency_ledger", "finishing a key") as transaction:
            now = self._clock.now_ms()
            facts = {"key": key, "holder": holder, "now": now, "expires_at": now + milliseconds(ttl)}
            if await transaction.execute(sql("ledger/finish_at_once"), facts) == 1:
                return EffectClaim(outcome=EffectOutcome.WON)
            (row,) = await transaction.fetchall(sql("ledger/look"), {"key": key, "now": now})
            return _found(row, now)

    async def sweep(self, *, limit: int = 10_000) -> int:
        facts = {"now": self._clock.now_ms(), "limit": limit}
        return await self._file.write(
            "sweeping the ledger", lambda connection: connection.execute(sql("ledger/sweep"), facts).rowcount
        )


def _claimed(connection: sqlite3.Connection, name: str, facts: dict[str, Any]) -> EffectClaim:
    if connection.execute(sql(name), facts).rowcount == 1:
        return EffectClaim(outcome=EffectOutcome.WON)
    row = connection.execute(sql("ledger/look"), {"key": facts["key"], "now": facts["now"]}).fetchone()
    return _found(row, facts["now"])


def _found(row: Any, now: int) -> EffectClaim:
    """Return what the ledger says about a key that could not be claimed."""
    status, _, result, claimed_until = row
    if status == "done":
        return EffectClaim(outcome=EffectOutcome.DONE, result=None if result is None else result.encode())
    return EffectClaim(outcome=EffectOutcome.HELD, held_for=timedelta(milliseconds=claimed_until - now))
