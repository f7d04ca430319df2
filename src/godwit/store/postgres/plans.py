"""Plans in PostgreSQL: staged by COPY from many tasks, applied in one transaction; a first one by COPY alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final

from godwit.core.faults import reach
from godwit.core.names import QueueName
from godwit.store.pipelines import oldest_wanted
from godwit.store.plans import Applied, Plan, Planned, check_plan
from godwit.store.postgres.database import PostgresDatabase, sql
from godwit.store.postgres.filling import fill
from godwit.store.postgres.loading import opened
from godwit.store.postgres.schedules import void_where

if TYPE_CHECKING:
    import pyarrow as pa

CANCEL_AT_ONCE: Final = 10_000
_COLUMNS: Final = ("run_id", "id", "key", "deliver_at", "envelope")
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

    async def stage(self, run_id: str, planned: Iterable[Planned]) -> int:
        records = ((run_id, one.id, one.key, one.deliver_at, one.message) for one in planned)
        async with self._database.connection("staging a plan") as connection:
            said: str = await connection.copy_records_to_table(
                "staging_plan", records=records, columns=_COLUMNS, timeout=_PATIENCE_SECONDS
            )
        return int(said.rsplit(maxsplit=1)[-1])

    async def apply(self, plan: Plan, *, now: datetime) -> Applied:
        async with self._database.transaction("applying a plan") as connection:
            check_plan(plan, await connection.fetchval(sql("plans/count"), plan.run_id))
            await opened(connection, plan.campaign)
            await connection.execute(sql("plans/alone"), plan.campaign, timeout=_PATIENCE_SECONDS)
            done = await connection.fetchrow(
                sql("plans/apply"), plan.run_id, plan.campaign, plan.queue, timeout=_PATIENCE_SECONDS
            )
            cancelled = 0
            period = (plan.run_id, plan.campaign, max(plan.start, now), plan.end, CANCEL_AT_ONCE)
            while voided := await void_where(connection, "plans/gone", "plans/published_gone", period, now):
                cancelled += voided
            await connection.execute(sql("schedules/count_campaign"), plan.campaign, done["added"], cancelled)
            await connection.execute(sql("plans/discard"), plan.run_id, oldest_wanted(plan.run_id))
            reach("plan.applying")
        return Applied(added=done["added"], moved=done["moved"], cancelled=cancelled)

    async def discard(self, run_id: str) -> None:
        await self._database.fetch("forgetting a plan", "plans/discard", run_id, oldest_wanted(run_id))
