"""A process that adds the first plan of a campaign, and dies at the fault point it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa

from godwit.core.fault_points import killer
from godwit.core.names import QueueName
from godwit.store.contract import Store
from godwit.store.postgres.schedule import first_plan
from godwit.store.sqlite.schedule import campaigns
from godwit.store.urls import connect

CAMPAIGN = "birthdays"
QUEUE = QueueName("birthdays")
STEP = 10


class Planned(NamedTuple):
    """One message of a plan."""

    id: UUID
    key: str
    deliver_at: datetime
    message: bytes


def part(rows: Sequence[Planned]) -> pa.RecordBatch:
    """Return messages as stores take them."""
    return pa.record_batch(
        {
            "id": pa.array([str(one.id) for one in rows], pa.string()),
            "key": pa.array([one.key for one in rows], pa.string()),
            "deliver_at": pa.array([one.deliver_at for one in rows], pa.timestamp("us", "UTC")),
            "message": pa.array([one.message for one in rows], pa.binary()),
        }
    )


async def add(store: Store, rows: Sequence[Planned]) -> int:
    """Add messages in small steps."""
    steps = (part(rows[start : start + STEP]) for start in range(0, len(rows), STEP))
    return await store.plans.add(CAMPAIGN, QUEUE, steps)


def work(url: str, rows: Sequence[Planned], fault: str) -> None:
    """Add messages and die."""
    first_plan.STEP_ROWS = STEP  # type: ignore[misc]
    for module in (first_plan, campaigns):
        module.fault_point = killer(fault)  # type: ignore[attr-defined]

    async def begin() -> None:
        async with connect(url) as store, store.plans.alone(CAMPAIGN) as fresh:
            assert fresh
            await add(store, rows)

    asyncio.run(begin())
