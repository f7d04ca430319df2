"""Plans in PostgreSQL: staged by COPY from many tasks, applied in one transaction; a first one by COPY alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

import asyncpg

from godwit.core.fault_points import fault_point
from godwit.core.names import QueueName
from godwit.store.pipelines import oldest_wanted
from godwit.store.plans import Applied, CampaignPlan, check_plan
from godwit.store.postgres.database import PostgresDatabase, sql
from godwit.store.postgres.schedule.campaigns import opened
from godwit.store.postgres.schedule.first_plan import fill, stage
from godwit.store.postgres.schedule.schedules import dropped

if TYPE_CHECKING:
    import pyarrow as pa

CANCEL_AT_ONCE: Final = 10_000
_PATIENCE_SECONDS: Final = 3_600
"""Applying millions of messages is one statement."""


class PostgresPlans:
    """The `Plans` of one database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    @asynccontextmanager
    async def alone(self, campaign: str) -> AsyncIterator[bool]:
        async with self._database.connection("planning a campaign") as connection:
            await opened(connection, campaign)
            async with connection.transaction():
                await connection.execute(sql("plans/alone"), campaign, timeout=_PATIENCE_SECONDS)
                yield await connection.fetchval(sql("plans/untouched"), campaign)

    async def add(self, campaign: str, queue: QueueName, parts: Iterable[pa.RecordBatch]) -> int:
        async with self._database.connection("adding a plan") as connection:
            return await fill(connection, campaign, queue, parts)

    async def stage(self, run_id: str, parts: Iterable[pa.RecordBatch]) -> int:
        async with self._database.connection("staging a plan") as connection:
            return await stage(connection, run_id, parts)

    async def apply(self, plan: CampaignPlan, *, now: datetime) -> Applied:
        async with self._database.connection("looking at a plan") as connection:
            await connection.execute(sql("plans/look"), timeout=_PATIENCE_SECONDS)
        async with self._database.transaction("applying a plan") as connection:
            check_plan(plan, await connection.fetchval(sql("plans/count"), plan.run_id, timeout=_PATIENCE_SECONDS))
            await opened(connection, plan.campaign)
            await connection.execute(sql("plans/alone"), plan.campaign, timeout=_PATIENCE_SECONDS)
            done = await connection.fetchrow(
                sql("plans/apply"), plan.run_id, plan.campaign, plan.queue, timeout=_PATIENCE_SECONDS
            )
            cancelled = await _cancelled(connection, plan, now)
            await connection.execute(sql("schedules/count_campaign"), plan.campaign, done["added"], cancelled)
            await _discarded(connection, plan.run_id)
            fault_point("plan.applying")
        return Applied(added=done["added"], moved=done["moved"], cancelled=cancelled)

    async def discard(self, run_id: str) -> None:
        async with self._database.connection("forgetting a plan") as connection:
            await _discarded(connection, run_id)


async def _cancelled(connection: asyncpg.Connection, plan: CampaignPlan, now: datetime) -> int:
    """Cancel what is no longer planned; return how many."""
    period = (plan.run_id, plan.campaign, max(plan.start, now), plan.end)
    count = 0
    async for ids in _pages(connection, "plans/gone", *period):
        count += (await dropped(connection, ids, (), now)).count
    async for published in _pages(connection, "plans/published_gone", *period):
        count += (await dropped(connection, (), published, now)).count
    return count


async def _pages(connection: asyncpg.Connection, name: str, *values: object) -> AsyncIterator[list[UUID]]:
    """Give the ids that a statement finds, some at a time; what is done to them meanwhile does not change it."""
    found = await connection.cursor(sql(name), *values, timeout=_PATIENCE_SECONDS)
    while rows := await found.fetch(CANCEL_AT_ONCE, timeout=_PATIENCE_SECONDS):
        yield [row["id"] for row in rows]


async def _discarded(connection: asyncpg.Connection, run_id: str) -> None:
    await connection.execute(sql("plans/discard"), run_id, oldest_wanted(run_id), timeout=_PATIENCE_SECONDS)
