"""Plans in a SQLite file: applied in steps that other writers get between; each of them may be repeated."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from godwit.core.clock import to_ms
from godwit.core.fault_points import fault_point
from godwit.core.names import QueueName
from godwit.store.pipelines import oldest_wanted
from godwit.store.plans import Applied, CampaignPlan, check_plan
from godwit.store.sqlite.file import SqliteFile, sql
from godwit.store.sqlite.schedule.campaigns import opened, stored
from godwit.store.sqlite.schedule.schedules import dropped

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE: Final = 20_000


class SqlitePlans:
    """The `Plans` of one file."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    @asynccontextmanager
    async def alone(self, campaign: str) -> AsyncIterator[bool]:
        # No load waits: the first to name the campaign may add, and others stage and apply in steps between his.
        yield await self._file.write("planning a campaign", lambda connection: _untouched(connection, campaign))

    async def add(self, campaign: str, queue: QueueName, parts: Iterable[pa.RecordBatch]) -> int:
        count = 0
        for part in parts:
            batch = [(known, key, queue, due, message) for known, key, due, message in _rows(part)]
            step = partial(stored, campaign=campaign, batch=batch, fresh=True, point="plan.adding")
            await self._file.write("adding a plan", step, durable=False)
            count += len(batch)
        await self._file.write("adding a plan", lambda connection: opened(connection, campaign))
        return count

    async def stage(self, run_id: str, parts: Iterable[pa.RecordBatch]) -> int:
        count = 0
        for part in parts:
            rows = [(run_id, *row) for row in _rows(part)]
            await self._file.write("staging a plan", partial(_stage, rows=rows), durable=False)
            count += len(rows)
        return count

    async def apply(self, plan: CampaignPlan, *, now: datetime) -> Applied:
        await self._file.write("applying a plan", lambda connection: _begun(connection, plan))
        added = moved = cancelled = 0
        after: str | None = ""
        while after is not None:
            last = after
            new, changed, after = await self._file.write("applying a plan", lambda found: _part(found, plan, last))  # noqa: B023 # awaited
            added, moved = added + new, moved + changed
        for name in ("gone", "published_gone"):
            place: int | None = 0
            while place is not None:
                step = partial(_cancel, plan=plan, name=name, after=place, now=now)
                gone, place = await self._file.write("applying a plan", step)
                cancelled += gone
        await self.discard(plan.run_id)
        return Applied(added=added, moved=moved, cancelled=cancelled)

    async def discard(self, run_id: str) -> None:
        await self._file.write(
            "forgetting a plan", lambda found: found.execute(sql("plans/discard"), (run_id, oldest_wanted(run_id)))
        )


def _untouched(connection: sqlite3.Connection, campaign: str) -> bool:
    fresh = opened(connection, campaign)
    return fresh and bool(connection.execute(sql("plans/untouched"), (campaign,)).fetchone()[0])


def _rows(part: pa.RecordBatch) -> list[tuple[str, str, int, bytes]]:
    """Return messages by id, so that each page of the index that holds them is visited once."""
    columns = (part.column(name).to_pylist() for name in ("id", "key", "deliver_at", "message"))
    rows = ((known, key, to_ms(due), message) for known, key, due, message in zip(*columns, strict=True))
    return sorted(rows, key=itemgetter(0))


def _stage(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    connection.executemany(sql("plans/stage"), rows)


def _begun(connection: sqlite3.Connection, plan: CampaignPlan) -> None:
    check_plan(plan, connection.execute(sql("plans/count"), (plan.run_id,)).fetchone()[0])
    opened(connection, plan.campaign)


def _part(connection: sqlite3.Connection, plan: CampaignPlan, after: str) -> tuple[int, int, str | None]:
    """Apply the next part; return how many were added and moved, and the last id of it, None when it was the last."""
    last: str | None = connection.execute(sql("plans/part"), (plan.run_id, after, AT_ONCE)).fetchone()[0]
    if last is None:
        return 0, 0, None
    moved = connection.execute(sql("plans/move"), (plan.run_id, after, last)).rowcount
    added = connection.execute(sql("plans/add"), (plan.run_id, plan.campaign, plan.queue, after, last)).rowcount
    connection.execute(sql("schedules/count_campaign"), (plan.campaign, added, 0))
    fault_point("plan.applying")
    return added, moved, last


def _cancel(
    connection: sqlite3.Connection, *, plan: CampaignPlan, name: str, after: int, now: datetime
) -> tuple[int, int | None]:
    """Cancel some of what a statement finds; return how many, and where to go on, None when nothing is left."""
    period = (plan.run_id, plan.campaign, to_ms(max(plan.start, now)), to_ms(plan.end))
    rows = connection.execute(sql(f"plans/{name}"), (*period, AT_ONCE, after)).fetchall()
    ids = [UUID(row["id"]) for row in rows]
    waiting, published = (ids, []) if name == "gone" else ([], ids)
    voided = dropped(connection, waiting, published, now).count
    connection.execute(sql("schedules/count_campaign"), (plan.campaign, 0, voided))
    return voided, rows[-1]["place"] if len(rows) == AT_ONCE else None
