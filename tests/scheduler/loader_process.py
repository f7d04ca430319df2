"""A process that loads a campaign, and dies at the fault point it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import utc_now
from godwit.core.fault_points import killer
from godwit.core.messages.message import Message
from godwit.core.settings import Settings
from godwit.manager import MessageQueueManager
from godwit.runtime.scheduler import campaigns
from godwit.runtime.scheduler.campaigns import Loaded, Row
from godwit.store.postgres.schedule import campaigns as postgres_loading
from godwit.store.sqlite.schedule import campaigns as sqlite_loading
from godwit.store.urls import connect

BATCH = 500


def rows(count: int) -> Iterator[Row]:
    due = utc_now() + timedelta(days=1)
    for number in range(count):
        yield f"user-{number}", due, Message(queue="mail", payload=number)


async def load(url: str, count: int) -> Loaded:
    mq = MessageQueueManager(MemoryBroker(), store=connect(url), settings=Settings(broker_url="memory://"))
    async with mq:
        return await mq.scheduler.schedule_many("spring", rows(count))


def work(url: str, count: int, fault: str) -> None:
    for module in (postgres_loading, sqlite_loading):
        module.fault_point = killer(fault)  # type: ignore[attr-defined, unused-ignore]
    campaigns.BATCH = BATCH  # type: ignore[misc]
    asyncio.run(load(url, count))
