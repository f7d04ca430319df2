"""Campaigns by COPY: a batch goes straight into the table; one that was there in part is merged through another.

Rows are packed here as COPY wants them, which takes a third of the driver's time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from struct import Struct
from typing import Final

import asyncpg

from godwit.core.errors import InvalidSchedule
from godwit.core.fault_points import fault_point
from godwit.core.schedule.schedules import ScheduleStatus
from godwit.store.postgres.database import PostgresDatabase, sql
from godwit.store.schedules import Loading, until

COLUMNS: Final = ("id", "campaign", "key", "queue_name", "message_id", "fire_at", "deliver_at", "envelope")
STAGING: Final = """
CREATE TEMPORARY TABLE IF NOT EXISTS loading (
    id UUID, campaign TEXT, key TEXT, queue_name TEXT, message_id TEXT, fire_at TIMESTAMPTZ, deliver_at TIMESTAMPTZ,
    envelope BYTEA
) ON COMMIT DELETE ROWS
"""
SLICE: Final = 500
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = b"\xff\xff"
_FIRST: Final = b"\0\x08\0\0\0\x10"
"""How a row begins: eight fields, and the length of the first, which is the id."""

_TEXT_ID: Final = b"\0\0\0\x24"
_length: Final = Struct(">i").pack
_times: Final = Struct(">iqiqi").pack
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


async def load(
    database: PostgresDatabase,
    campaign: str,
    rows: Iterator[Loading],
    *,
    size: int,
    report: Callable[[int, int], None],
) -> int:
    """Store a campaign, `size` rows a transaction; return how many of them were new.

    All of it happens in one thread with a loop and a connection of its own. Rows are packed while the server stores
    those before them; between two threads they would wait for the interpreter more than for the server.
    """
    loop = asyncio.get_running_loop()
    left = threading.Event()

    async def whole() -> int:
        async with database.apart("loading a campaign") as connection:
            return await _load(connection, campaign, until(left, rows), size, told)

    def told(read: int, added: int) -> None:
        loop.call_soon_threadsafe(report, read, added)

    loading = asyncio.create_task(asyncio.to_thread(asyncio.run, whole()))
    try:
        return await asyncio.shield(loading)
    except asyncio.CancelledError:
        # The thread ends at its next row; what it was storing is rolled back.
        left.set()
        await asyncio.gather(loading, return_exceptions=True)
        raise


async def _load(
    connection: asyncpg.Connection,
    campaign: str,
    rows: Iterator[Loading],
    size: int,
    report: Callable[[int, int], None],
) -> int:
    fresh = await opened(connection, campaign)
    await connection.execute(STAGING)
    read = added = 0
    while batch := LoadBatch(campaign, rows, size):
        try:
            added += await _stored(connection, campaign, batch, fresh=fresh)
        except asyncpg.UniqueViolationError:
            # A key came twice, or another process loads the same campaign: from here on it is as if loaded again.
            fresh = False
            added += await _stored(connection, campaign, batch, fresh=False)
        read += batch.count
        report(read, added)
    return added


class LoadBatch:
    """Rows of one transaction, packed in slices as they are sent, and kept in case they must be sent again."""

    def __init__(self, campaign: str, rows: Iterator[Loading], size: int) -> None:
        self._campaign, self._rows, self._left = campaign, rows, size
        self.count = 0
        self._slices = [_SIGNATURE]
        self._take()

    def __bool__(self) -> bool:
        return self.count > 0

    def _take(self) -> bool:
        """Pack the next slice; say whether there was one."""
        some = list(islice(self._rows, min(self._left, SLICE)))
        if some:
            self._slices.append(packed(self._campaign, some))
            self.count += len(some)
            self._left -= len(some)
        return bool(some)

    async def sent(self) -> AsyncIterator[bytes]:
        """Give what COPY shall get; the next slice is made while the server works on the one before."""
        place = 0
        while place < len(self._slices) or self._take():
            yield self._slices[place]
            place += 1
        yield _END


async def opened(connection: asyncpg.Connection, campaign: str) -> bool:
    """Say whether a campaign is new; refuse one that was cancelled."""
    row = await connection.fetchrow(sql("schedules/open_campaign"), campaign)
    _check(campaign, row["status"])
    return bool(row["fresh"])


def packed(campaign: str, rows: Iterable[Loading]) -> bytes:
    """Return rows in the binary format of COPY, in the order of `COLUMNS`."""
    whole = _field(campaign)
    found: list[bytes] = []
    for known, key, queue, deliver_at, message in rows:
        due = (deliver_at - _EPOCH) // _MICROSECOND
        found += (
            _FIRST,
            bytes.fromhex(known.replace("-", "")),
            whole,
            _field(key),
            _field(queue),
            _TEXT_ID,
            known.encode(),
            _times(8, due, 8, due, len(message)),
            message,
        )
    return b"".join(found)


def _field(text: str) -> bytes:
    encoded = text.encode()
    return _length(len(encoded)) + encoded


def _check(campaign: str, status: str) -> None:
    if status == ScheduleStatus.CANCELLED:
        raise InvalidSchedule("campaign", f"{campaign!r} was cancelled", "Use another name for a new one.")


async def _stored(connection: asyncpg.Connection, campaign: str, batch: LoadBatch, *, fresh: bool) -> int:
    """Store one batch in one transaction, so that a run that is stopped loses at most one batch."""
    async with connection.transaction():
        _check(campaign, await connection.fetchval(sql("schedules/take_campaign"), campaign))
        added = await (_copied(connection, "schedule_firings", batch) if fresh else _merged(connection, batch))
        if added:
            await connection.execute(sql("schedules/count_campaign"), campaign, added, 0)
        fault_point("scheduler.loading")
    return added


async def _merged(connection: asyncpg.Connection, batch: LoadBatch) -> int:
    await _copied(connection, "loading", batch, schema="pg_temp")
    return int(await connection.fetchval(sql("schedules/load_again")))


async def _copied(connection: asyncpg.Connection, table: str, batch: LoadBatch, *, schema: str | None = None) -> int:
    status: str = await connection.copy_to_table(
        table, source=batch.sent(), columns=COLUMNS, schema_name=schema, format="binary"
    )
    return int(status.rsplit(maxsplit=1)[-1])
