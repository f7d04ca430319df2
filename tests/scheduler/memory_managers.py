"""Managers over one store and one broker in memory, with a clock set by hand: a scheduler is one `managers.open()`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from random import Random

from godwit.brokers.contract import Ack
from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import ManualClock, from_ms, to_ms
from godwit.core.messages.message import Message
from godwit.core.queues import QueueSpec
from godwit.core.settings import SchedulerSettings, Settings
from godwit.manager import MessageQueueManager
from godwit.store.urls import connect
from tests.scheduler.builders import NOON, QUEUE


class LastingBroker(MemoryBroker):
    """A broker that outlives the managers that close it, as a server does."""

    async def close(self) -> None:
        """Stay."""


class MemoryManagers:
    """What several schedulers share."""

    def __init__(self, store_url: str) -> None:
        self.clock = ManualClock(to_ms(NOON))
        self.broker = LastingBroker(clock=self.clock)
        self.store_url = store_url
        self._count = 0

    @property
    def now(self) -> datetime:
        return from_ms(self.clock.now_ms())

    def manager(self, scheduler: SchedulerSettings | None = None) -> MessageQueueManager:
        self._count += 1
        return MessageQueueManager(
            self.broker,
            store=connect(self.store_url),
            settings=Settings(broker_url="memory://", scheduler=scheduler or SchedulerSettings()),
            source=f"scheduler-{self._count}",
            clock=self.clock,
            random=Random(0),
        )

    @asynccontextmanager
    async def open(self, scheduler: SchedulerSettings | None = None) -> AsyncIterator[MessageQueueManager]:
        mq = self.manager(scheduler)
        await self.broker.declare(QueueSpec(name=QUEUE))
        async with mq:
            yield mq

    async def delivered(self) -> list[Message]:
        """Take and ack whatever is ready now."""
        found: list[Message] = []
        while pulled := await self.broker.pull(QUEUE, "default", worker="w", limit=1_000, lease=timedelta(seconds=30)):
            found += [one.open() for one in pulled]
            await self.broker.settle([Ack(one.ack_id) for one in pulled])
        return found

    async def waiting(self) -> int:
        """Return how many messages the broker holds for later."""
        return sum(group.delayed for queue in await self.broker.stats() for group in queue.groups)
