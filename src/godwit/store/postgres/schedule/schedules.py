"""Schedules in PostgreSQL: claims by SKIP LOCKED, campaigns by COPY, what is over in daily partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from godwit.core.fault_points import fault_point
from godwit.core.schedule.schedules import Firing, FiringStatus, Schedule, ScheduleStatus
from godwit.store.bodies import without_nul
from godwit.store.postgres.database import PostgresDatabase, sql
from godwit.store.postgres.schedule.campaigns import load
from godwit.store.schedule_rows import ScheduleRows
from godwit.store.schedules import CampaignState, Lateness, Loading, ScheduleAdvance, ScheduleBacklog, Sent, Voided

HISTORY: Final = "schedule_firings_history"

ROWS: Final = ScheduleRows()


class PostgresSchedules:
    """The `Schedules` of one database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._days: set[date] = set()

    # Rules

    async def add(self, schedule: Schedule) -> bool:
        return (
            await self._database.fetchrow("adding a schedule", "schedules/add", *ROWS.values_of(schedule)) is not None
        )

    async def get(self, schedule_id: str) -> Schedule | None:
        row = await self._database.fetchrow("reading a schedule", "schedules/get", schedule_id)
        return None if row is None else ROWS.schedule_of(row)

    async def page(
        self, *, after: str = "", limit: int = 100, status: ScheduleStatus | None = None, queue: str | None = None
    ) -> list[Schedule]:
        rows = await self._database.fetch("listing schedules", "schedules/page", after, status, queue, limit)
        return [ROWS.schedule_of(row) for row in rows]

    async def change(self, schedule: Schedule, *, now: datetime) -> Voided | None:
        async with self._database.transaction("changing a schedule") as connection:
            if await connection.fetchrow(sql("schedules/replace"), *ROWS.values_of(schedule)) is None:
                return None
            ids = await _ids(connection, "of_schedule", schedule.id, now)
            published = await _ids(connection, "published_of_schedule", schedule.id, now)
            voided = await dropped(connection, ids, published, now)
            await connection.execute(sql("schedules/uncount"), schedule.id, voided.count)
        return voided

    async def plan(
        self, *, until: datetime, limit: int, decide: Callable[[Schedule], ScheduleAdvance], without: Sequence[str] = ()
    ) -> int:
        async with self._database.transaction("planning schedules") as connection:
            rows = await connection.fetch(sql("schedules/due"), until, limit, list(without))
            decided = [decide(ROWS.schedule_of(row)) for row in rows]
            if decided:
                await self._advance(connection, [one.schedule for one in decided])
                await _put(connection, [firing for one in decided for firing in one.firings])
                fault_point("scheduler.planning")
        return len(decided)

    async def _advance(self, connection: asyncpg.Connection, schedules: Sequence[Schedule]) -> None:
        await connection.execute(
            sql("schedules/advance"),
            [schedule.id for schedule in schedules],
            [schedule.status for schedule in schedules],
            [schedule.next_fire_at for schedule in schedules],
            [schedule.last_fire_at for schedule in schedules],
            [schedule.occurrences for schedule in schedules],
            [schedule.skipped for schedule in schedules],
            [without_nul(schedule.problem) for schedule in schedules],
        )

    # Firings

    async def put(self, firings: Sequence[Firing]) -> int:
        async with self._database.transaction("scheduling messages") as connection:
            return await _put(connection, firings)

    async def find(self, firing_id: UUID) -> Firing | None:
        row = await self._database.fetchrow("reading a firing", "schedules/find", firing_id)
        return None if row is None else ROWS.firing_of(row)

    async def upcoming(self, *, limit: int = 100, schedule_id: str | None = None) -> list[Firing]:
        if schedule_id is None:
            rows = await self._database.fetch("listing firings", "schedules/upcoming", limit)
        else:
            rows = await self._database.fetch("listing firings", "schedules/upcoming_of_schedule", limit, schedule_id)
        return [ROWS.firing_of(row) for row in rows]

    async def move(self, firing_id: UUID, deliver_at: datetime) -> bool:
        row = await self._database.fetchrow("moving a firing", "schedules/move", firing_id, deliver_at)
        return row is not None

    async def hold(self, firing_id: UUID, *, paused: bool) -> bool:
        states = (FiringStatus.CREATED, FiringStatus.PAUSED)
        row = await self._database.fetchrow(
            "pausing a firing", "schedules/hold", firing_id, *(states if paused else reversed(states))
        )
        return row is not None

    async def claim(self, *, now: datetime, until: datetime, limit: int, owner: str, lease: timedelta) -> list[Firing]:
        rows = await self._database.fetch("claiming firings", "schedules/claim", until, limit, now, owner, now + lease)
        return sorted(map(ROWS.firing_of, rows), key=lambda firing: firing.deliver_at)

    async def claim_again(self, *, now: datetime, limit: int, owner: str, lease: timedelta) -> list[Firing]:
        rows = await self._database.fetch("claiming firings", "schedules/claim_again", now, limit, owner, now + lease)
        return sorted(map(ROWS.firing_of, rows), key=lambda firing: firing.deliver_at)

    async def confirm(self, ids: Sequence[UUID], *, owner: str, now: datetime) -> set[UUID]:
        await self._ensure_day(now)
        rows = await self._database.fetch("confirming firings", "schedules/confirm", list(ids), owner, now)
        return {row["id"] for row in rows}

    async def release(
        self, ids: Sequence[UUID], *, owner: str, error: str | None = None, again_at: datetime | None = None
    ) -> None:
        await self._database.fetch("releasing firings", "schedules/release", list(ids), owner, error, again_at)

    async def wake(self, *, now: datetime, limit: int) -> int:
        return len(await self._database.fetch("waking firings", "schedules/wake", now, limit))

    async def void(self, ids: Sequence[UUID], *, now: datetime) -> Voided:
        await self._ensure_day(now)
        async with self._database.transaction("cancelling firings") as connection:
            published = await _ids(connection, "published", list(ids), now)
            buried = await connection.fetch(sql("schedules/bury"), list(ids), now)
            return await _recalled(connection, len(buried), ids, published, now)

    async def cancelling(self, ids: Sequence[UUID] | None = None, *, now: datetime, limit: int = 1_000) -> list[Sent]:
        if ids is None:
            rows = await self._database.fetch("cancelling firings", "schedules/cancelling", now, limit)
        else:
            rows = await self._database.fetch("cancelling firings", "schedules/cancelling_of", list(ids))
        return [ROWS.sent_of(row) for row in rows]

    async def cancelled(self, ids: Sequence[UUID], *, now: datetime) -> None:
        await self._ensure_day(now)
        await self._database.fetch("cancelling firings", "schedules/cancelled", list(ids), now)

    # Campaigns

    async def load(
        self, campaign: str, rows: Iterator[Loading], *, size: int, report: Callable[[int, int], None]
    ) -> int:
        return await load(self._database, campaign, rows, size=size, report=report)

    async def campaign(self, name: str) -> CampaignState | None:
        row = await self._database.fetchrow("reading a campaign", "schedules/campaign", name)
        if row is None:
            return None
        return CampaignState(
            name=row["name"],
            status=ScheduleStatus(row["status"]),
            planned=row["planned"],
            cancelled=row["cancelled"],
            waiting=row["waiting"],
        )

    async def cancel_campaign(self, name: str, *, now: datetime, limit: int) -> Voided:
        async with self._database.transaction("cancelling a campaign") as connection:
            await connection.execute(sql("schedules/close_campaign"), name)
            ids = await _ids(connection, "of_campaign", name, limit)
            published = await _ids(connection, "published_of_campaign", name, now, limit)
            voided = await dropped(connection, ids, published, now)
            await connection.execute(sql("schedules/count_campaign"), name, 0, voided.count)
        return voided

    # Watching and cleaning

    async def backlog(self, *, now: datetime) -> ScheduleBacklog:
        row = await self._database.fetchrow("reading the backlog", "schedules/backlog", now)
        assert row is not None  # noqa: S101 # an aggregate has one row
        return ScheduleBacklog(count=row["count"], oldest=row["oldest"])

    async def lateness(
        self, *, schedule_id: str | None = None, campaign: str | None = None, since: datetime | None = None
    ) -> Lateness:
        row = await self._database.fetchrow("reading lateness", "schedules/lateness", schedule_id, campaign, since)
        return Lateness(**dict(row or {}))

    async def prune(self, *, before: datetime) -> int:
        async with self._database.transaction("pruning schedules") as connection:
            day = before.astimezone(UTC).date()
            await connection.execute("SELECT godwit_drop_days($1, $2)", HISTORY, day)
            return int(await connection.fetchval(sql("schedules/forget"), before))

    async def _ensure_day(self, now: datetime) -> None:
        """Make the partition of a day before the first row of it comes."""
        day = now.astimezone(UTC).date()
        if day not in self._days:
            async with self._database.transaction("making a partition") as connection:
                await connection.execute("SELECT godwit_ensure_day($1, $2)", HISTORY, day)
            self._days.add(day)


async def dropped(
    connection: asyncpg.Connection, ids: Sequence[UUID], published: Sequence[UUID], now: datetime
) -> Voided:
    """Cancel firings that wait, and some in history; unclaimed ones are gone without a trace."""
    waiting = await connection.fetch(sql("schedules/drop"), list(ids))
    return await _recalled(connection, len(waiting), ids, published, now)


async def _ids(connection: asyncpg.Connection, name: str, *arguments: object) -> list[UUID]:
    return [row["id"] for row in await connection.fetch(sql(f"schedules/{name}"), *arguments)]


async def _recalled(
    connection: asyncpg.Connection, waiting: int, ids: Sequence[UUID], published: Sequence[UUID], now: datetime
) -> Voided:
    """Mark what may be with the broker as being cancelled, so that a later sweep knows of it too."""
    recalled = await connection.fetch(sql("schedules/recall"), list(ids))
    back = await connection.fetch(sql("schedules/bring_back"), list(published), now)
    sent = tuple(ROWS.sent_of(row) for row in (*recalled, *back))
    return Voided(count=waiting + len(sent), sent=sent)


async def _put(connection: asyncpg.Connection, firings: Sequence[Firing]) -> int:
    if not firings:
        return 0
    rows = await connection.fetch(
        sql("schedules/put"),
        [firing.id for firing in firings],
        [firing.schedule_id for firing in firings],
        [firing.campaign for firing in firings],
        [firing.key for firing in firings],
        [firing.queue for firing in firings],
        [firing.message_id for firing in firings],
        [firing.fire_at for firing in firings],
        [firing.deliver_at for firing in firings],
        [firing.message for firing in firings],
    )
    return len(rows)
