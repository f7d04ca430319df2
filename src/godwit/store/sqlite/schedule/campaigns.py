"""Campaigns into a file: many rows a statement, so that the next are read while SQLite stores these."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Final

from godwit.core.clock import to_ms
from godwit.core.errors import InvalidSchedule
from godwit.core.fault_points import fault_point
from godwit.core.schedule.schedules import ScheduleStatus
from godwit.store.schedules import Loading, until
from godwit.store.sqlite.file import SqliteFile, sql
from godwit.store.sqlite.many_rows import insert

Values = tuple[str, str, str, int, bytes]
"""Id, key, queue, due time in milliseconds, message."""

AT_ONCE: Final = 5_000
"""Rows of a statement. SQLite takes 32,766 values in one, and a row has five."""
TURN_SECONDS: Final = 0.0005


class _ShortTurns:
    """Lets threads take the interpreter from each other ten times as soon, while a load is inside.

    Rows are made in one thread and stored by another, which asks for the interpreter after each statement and would
    wait for five milliseconds every time: a third of a load.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 0.0

    def begin(self) -> None:
        """Come in."""
        with self._lock:
            if not self._inside:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(TURN_SECONDS, self._before))
            self._inside += 1

    def end(self) -> None:
        """Leave."""
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.setswitchinterval(self._before)


_short_turns: Final = _ShortTurns()


async def load(
    file: SqliteFile, campaign: str, rows: Iterator[Loading], *, size: int, report: Callable[[int, int], None]
) -> int:
    """Store a campaign, `size` rows a transaction; return how many of them were new.

    Each transaction outlives the process, all of them a power cut: the last one waits for the disk.
    """
    fresh = await file.write("loading a campaign", lambda connection: opened(connection, campaign))
    read = added = 0
    async with aclosing(_read_ahead(rows, size)) as batches:
        async for batch in batches:
            step = partial(stored, campaign=campaign, batch=batch, fresh=fresh)
            added += await file.write("loading a campaign", step, durable=False)
            read += len(batch)
            report(read, added)
    await file.write("loading a campaign", lambda connection: _count(connection, campaign, 0))
    return added


async def _read_ahead(rows: Iterator[Loading], size: int) -> AsyncGenerator[list[Values], None]:
    """Return batches of rows, the next one made in a thread while the last is being stored."""
    left = threading.Event()
    wanted = until(left, rows)
    coming = asyncio.create_task(asyncio.to_thread(_batch, wanted, size))
    _short_turns.begin()
    try:
        while batch := await coming:
            coming = asyncio.create_task(asyncio.to_thread(_batch, wanted, size))
            yield batch
    finally:
        _short_turns.end()
        left.set()
        await asyncio.gather(coming, return_exceptions=True)


def _batch(rows: Iterator[Loading], size: int) -> list[Values]:
    found = [
        (known, key, queue, to_ms(deliver_at), message) for known, key, queue, deliver_at, message in islice(rows, size)
    ]
    # In the order of ids each page of the index that holds them is visited once a batch, in whatever order keys come.
    # Of a key that comes twice the first row stays the first.
    found.sort(key=itemgetter(0))
    return found


def opened(connection: sqlite3.Connection, campaign: str) -> bool:
    """Say whether a campaign is new; refuse one that was cancelled."""
    fresh = connection.execute(sql("schedules/open_campaign"), (campaign,)).rowcount == 1
    _check(connection, campaign)
    return fresh


def _check(connection: sqlite3.Connection, campaign: str) -> None:
    (status,) = connection.execute(sql("schedules/campaign_status"), (campaign,)).fetchone()
    if status == ScheduleStatus.CANCELLED:
        raise InvalidSchedule("campaign", f"{campaign!r} was cancelled", "Use another name for a new one.")


def stored(
    connection: sqlite3.Connection,
    *,
    campaign: str,
    batch: list[Values],
    fresh: bool,
    point: str = "scheduler.loading",
) -> int:
    """Store one batch in one transaction, so that a run that is stopped loses at most one batch."""
    _check(connection, campaign)
    name = "schedules/load" if fresh else "schedules/load_again"
    added = insert(connection, name, batch, campaign, at_once=AT_ONCE)
    _count(connection, campaign, added)
    fault_point(point)
    return added


def _count(connection: sqlite3.Connection, campaign: str, added: int) -> None:
    connection.execute(sql("schedules/count_campaign"), (campaign, added, 0))
