"""Schedules in a SQLite file: every change is one immediate transaction under the file lock, so claims cannot cross."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from godwit.core.clock import from_ms, to_ms
from godwit.core.fault_points import fault_point
from godwit.core.schedule.schedules import Firing, FiringStatus, Schedule, ScheduleStatus
from godwit.store.schedules import CampaignState, Lateness, Loading, ScheduleAdvance, ScheduleBacklog, Sent, Voided
from godwit.store.sqlite.file import SqliteFile, sql
from godwit.store.sqlite.schedule.campaigns import load
from godwit.store.sqlite.schedule.rows import ROWS, firing_values


class SqliteSchedules:
    """The `Schedules` of one file."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    # Rules

    async def add(self, schedule: Schedule) -> bool:
        return bool(await self._write("adding a schedule", "add", *ROWS.values_of(schedule)))

    async def get(self, schedule_id: str) -> Schedule | None:
        rows = await self._read("reading a schedule", "get", schedule_id)
        return ROWS.schedule_of(rows[0]) if rows else None

    async def page(
        self, *, after: str = "", limit: int = 100, status: ScheduleStatus | None = None, queue: str | None = None
    ) -> list[Schedule]:
        rows = await self._read("listing schedules", "page", after, status, queue, limit)
        return [ROWS.schedule_of(row) for row in rows]

    async def change(self, schedule: Schedule, *, now: datetime) -> Voided | None:
        def step(connection: sqlite3.Connection) -> Voided | None:
            if not _run(connection, "replace", *ROWS.values_of(schedule)):
                return None
            ids = _ids(connection, "of_schedule", schedule.id, to_ms(now))
            published = _ids(connection, "published_of_schedule", schedule.id, to_ms(now))
            voided = dropped(connection, ids, published, now)
            _run(connection, "uncount", schedule.id, voided.count)
            return voided

        return await self._file.write("changing a schedule", step)

    async def plan(
        self, *, until: datetime, limit: int, decide: Callable[[Schedule], ScheduleAdvance], without: Sequence[str] = ()
    ) -> int:
        def step(connection: sqlite3.Connection) -> int:
            passed_over = msgspec.json.encode(list(without)).decode()
            rows = _run(connection, "due", to_ms(until), limit, passed_over)
            decided = [decide(ROWS.schedule_of(row)) for row in rows]
            connection.executemany(sql("schedules/advance"), [_advanced(one.schedule) for one in decided])
            _put(connection, [firing for one in decided for firing in one.firings])
            if decided:
                fault_point("scheduler.planning")
            return len(decided)

        return await self._file.write("planning schedules", step)

    # Firings

    async def put(self, firings: Sequence[Firing]) -> int:
        return await self._file.write("scheduling messages", lambda connection: _put(connection, firings))

    async def find(self, firing_id: UUID) -> Firing | None:
        rows = await self._read("reading a firing", "find", str(firing_id))
        return ROWS.firing_of(rows[0]) if rows else None

    async def upcoming(self, *, limit: int = 100, schedule_id: str | None = None) -> list[Firing]:
        if schedule_id is None:
            rows = await self._read("listing firings", "upcoming", limit)
        else:
            rows = await self._read("listing firings", "upcoming_of_schedule", limit, schedule_id)
        return [ROWS.firing_of(row) for row in rows]

    async def move(self, firing_id: UUID, deliver_at: datetime) -> bool:
        return bool(await self._write("moving a firing", "move", str(firing_id), to_ms(deliver_at)))

    async def hold(self, firing_id: UUID, *, paused: bool) -> bool:
        states = (FiringStatus.CREATED, FiringStatus.PAUSED)
        changes = states if paused else tuple(reversed(states))
        return bool(await self._write("pausing a firing", "hold", str(firing_id), *changes))

    async def claim(self, *, now: datetime, until: datetime, limit: int, owner: str, lease: timedelta) -> list[Firing]:
        rows = await self._write(
            "claiming firings", "claim", to_ms(until), limit, to_ms(now), owner, to_ms(now + lease)
        )
        return sorted(map(ROWS.firing_of, rows), key=lambda firing: firing.deliver_at)

    async def claim_again(self, *, now: datetime, limit: int, owner: str, lease: timedelta) -> list[Firing]:
        rows = await self._write("claiming firings", "claim_again", to_ms(now), limit, owner, to_ms(now + lease))
        return sorted(map(ROWS.firing_of, rows), key=lambda firing: firing.deliver_at)

    async def confirm(self, ids: Sequence[UUID], *, owner: str, now: datetime) -> set[UUID]:
        def step(connection: sqlite3.Connection) -> set[UUID]:
            return _moved(connection, "confirm", _listed(ids), owner, to_ms(now))

        return await self._file.write("confirming firings", step)

    async def release(
        self, ids: Sequence[UUID], *, owner: str, error: str | None = None, again_at: datetime | None = None
    ) -> None:
        again_ms = None if again_at is None else to_ms(again_at)
        await self._write("releasing firings", "release", _listed(ids), owner, error, again_ms)

    async def wake(self, *, now: datetime, limit: int) -> int:
        return len(await self._write("waking firings", "wake", to_ms(now), limit))

    async def void(self, ids: Sequence[UUID], *, now: datetime) -> Voided:
        def step(connection: sqlite3.Connection) -> Voided:
            published = _ids(connection, "published", _listed(ids), to_ms(now))
            buried = _moved(connection, "bury", _listed(ids), to_ms(now))
            return _voided(connection, len(buried), ids, published, now)

        return await self._file.write("cancelling firings", step)

    async def cancelling(self, ids: Sequence[UUID] | None = None, *, now: datetime, limit: int = 1_000) -> list[Sent]:
        if ids is None:
            rows = await self._read("cancelling firings", "cancelling", to_ms(now), limit)
        else:
            rows = await self._read("cancelling firings", "cancelling_of", _listed(ids))
        return [ROWS.sent_of(row) for row in rows]

    async def cancelled(self, ids: Sequence[UUID], *, now: datetime) -> None:
        def step(connection: sqlite3.Connection) -> None:
            _moved(connection, "cancelled", _listed(ids), to_ms(now))

        await self._file.write("cancelling firings", step)

    # Campaigns

    async def load(
        self, campaign: str, rows: Iterator[Loading], *, size: int, report: Callable[[int, int], None]
    ) -> int:
        return await load(self._file, campaign, rows, size=size, report=report)

    async def campaign(self, name: str) -> CampaignState | None:
        rows = await self._read("reading a campaign", "campaign", name)
        if not rows:
            return None
        row = rows[0]
        return CampaignState(
            name=row["name"],
            status=ScheduleStatus(row["status"]),
            planned=row["planned"],
            cancelled=row["cancelled"],
            waiting=row["waiting"],
        )

    async def cancel_campaign(self, name: str, *, now: datetime, limit: int) -> Voided:
        def step(connection: sqlite3.Connection) -> Voided:
            _run(connection, "close_campaign", name)
            ids = _ids(connection, "of_campaign", name, limit)
            published = _ids(connection, "published_of_campaign", name, to_ms(now), limit)
            voided = dropped(connection, ids, published, now)
            _run(connection, "count_campaign", name, 0, voided.count)
            return voided

        return await self._file.write("cancelling a campaign", step)

    # Watching and cleaning

    async def backlog(self, *, now: datetime) -> ScheduleBacklog:
        (row,) = await self._read("reading the backlog", "backlog", to_ms(now))
        return ScheduleBacklog(count=row["count"], oldest=None if row["oldest"] is None else from_ms(row["oldest"]))

    async def lateness(
        self, *, schedule_id: str | None = None, campaign: str | None = None, since: datetime | None = None
    ) -> Lateness:
        since_ms = None if since is None else to_ms(since)
        (row,) = await self._read("reading lateness", "lateness", schedule_id, campaign, since_ms)
        return Lateness(**dict(row))

    async def prune(self, *, before: datetime) -> int:
        def step(connection: sqlite3.Connection) -> int:
            connection.execute(sql("schedules/forget_firings"), (to_ms(before),))
            return connection.execute(sql("schedules/forget"), (to_ms(before),)).rowcount

        return await self._file.write("pruning schedules", step)

    async def _read(self, operation: str, name: str, *values: Any) -> list[sqlite3.Row]:
        return await self._file.read(operation, lambda connection: _run(connection, name, *values))

    async def _write(self, operation: str, name: str, *values: Any) -> list[sqlite3.Row]:
        return await self._file.write(operation, lambda connection: _run(connection, name, *values))


def _run(connection: sqlite3.Connection, name: str, *values: Any) -> list[sqlite3.Row]:
    return connection.execute(sql(f"schedules/{name}"), values).fetchall()


def _ids(connection: sqlite3.Connection, name: str, *values: Any) -> list[UUID]:
    return [UUID(row["id"]) for row in _run(connection, name, *values)]


def _listed(ids: Sequence[UUID]) -> str:
    return msgspec.json.encode(ids).decode()


def _moved(connection: sqlite3.Connection, name: str, *values: Any) -> set[UUID]:
    """Copy firings to history and delete them; return which."""
    ids = _ids(connection, name, *values)
    _run(connection, "remove", _listed(ids))
    return set(ids)


def _voided(
    connection: sqlite3.Connection, waiting: int, ids: Sequence[UUID], published: Sequence[UUID], now: datetime
) -> Voided:
    """Mark what may be with the broker as being cancelled, so that a later sweep knows of it too."""
    recalled = _run(connection, "recall", _listed(ids))
    back = _run(connection, "bring_back", _listed(published), to_ms(now))
    _run(connection, "unbury", _listed(published))
    sent = tuple(ROWS.sent_of(row) for row in (*recalled, *back))
    return Voided(count=waiting + len(sent), sent=sent)


def dropped(connection: sqlite3.Connection, ids: Sequence[UUID], published: Sequence[UUID], now: datetime) -> Voided:
    """Cancel firings that wait, and some in history; unclaimed ones are gone without a trace."""
    return _voided(connection, len(_run(connection, "drop", _listed(ids))), ids, published, now)


def _put(connection: sqlite3.Connection, firings: Sequence[Firing]) -> int:
    if not firings:
        return 0
    return connection.executemany(sql("schedules/put"), [firing_values(firing) for firing in firings]).rowcount


def _advanced(schedule: Schedule) -> tuple[Any, ...]:
    return (
        schedule.status,
        None if schedule.next_fire_at is None else to_ms(schedule.next_fire_at),
        None if schedule.last_fire_at is None else to_ms(schedule.last_fire_at),
        schedule.occurrences,
        schedule.skipped,
        schedule.problem,
        schedule.id,
    )
