"""A process that loads a campaign, and dies where it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import utc_now
from godwit.core.faults import killer
from godwit.core.message import Message
from godwit.core.settings import Settings
from godwit.manager import MessageQueueManager
from godwit.runtime import scheduler_bulk
from godwit.runtime.scheduler_bulk import Loaded, Row, batches
from godwit.store.postgres import schedules as postgres_schedules
from godwit.store.sqlite import schedules as sqlite_schedules
from godwit.store.urls import connect

BATCH = 500


def rows(count: int) -> Iterator[Row]:
    due = utc_now() + timedelta(days=1)
    for number in range(count):
        yield f"user-{number}", due, Message(queue="mail", payload=number)


def small_batches(*arguments: object, **options: object):  # type: ignore[no-untyped-def] # noqa: ANN201
    return batches(*arguments, **options, size=BATCH)  # type: ignore[arg-type]


async def load(url: str, count: int) -> Loaded:
    mq = MessageQueueManager(MemoryBroker(), store=connect(url), settings=Settings(broker_url="memory://"))
    async with mq:
        return await mq.scheduler.schedule_many("spring", rows(count))


def work(url: str, count: int, fault: str) -> None:
    for module in (postgres_schedules, sqlite_schedules):
        module.reach = killer(fault)  # type: ignore[attr-defined]
    scheduler_bulk.batches = small_batches
    asyncio.run(load(url, count))
