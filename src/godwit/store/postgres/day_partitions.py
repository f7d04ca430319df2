"""Days of partitioned tables: made before the first row of a day, dropped as a whole when they are too old."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import asyncpg

_DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1)


class DayPartitions:
    """The days some tables have parts for, as far as this process knows."""

    def __init__(self, *tables: str) -> None:
        self._tables = tables
        self._known: set[date] = set()

    async def ensure(self, connection: asyncpg.Connection, instants_ms: Iterable[int]) -> None:
        """Make parts for the days of these instants; not inside a transaction, which might be rolled back."""
        days = {_EPOCH + timedelta(days=instant_ms // _DAY_MS) for instant_ms in instants_ms} - self._known
        for day in sorted(days):
            for table in self._tables:
                await connection.execute("SELECT godwit_ensure_day($1, $2)", table, day)
            self._known.add(day)

    async def ensure_around(self, connection: asyncpg.Connection, now: datetime | None = None) -> None:
        """Make parts for today and tomorrow: the server's clock may be ahead of ours."""
        start = int((now or datetime.now(UTC)).timestamp() * 1000)
        await self.ensure(connection, (start - _DAY_MS, start, start + _DAY_MS))

    async def drop_before(self, connection: asyncpg.Connection, day: date) -> list[str]:
        """Drop all parts of earlier days and return their names."""
        dropped: list[str] = []
        for table in self._tables:
            rows: list[Any] = await connection.fetch("SELECT godwit_drop_days($1, $2)", table, day)
            dropped += [row[0] for row in rows]
        self._known = {known for known in self._known if known >= day}
        return dropped
