"""A queue that has copies in every place: in lanes, parked, delayed, blocked, leased and dead, of two groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final

from godwit.brokers.contract import Delivery, GiveUp, Nack
from godwit.brokers.redis import RedisBroker
from godwit.core.clock import ManualClock, from_ms
from godwit.core.failures.failure import FailureKind, ProcessingError
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message, Scheduling
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from tests.servers.redis import Program, RedisServer, fresh

Q, DEAD, G, KEYED = QueueName("orders"), QueueName("dead"), GroupName("g"), GroupName("keyed")
LEASE: Final = timedelta(seconds=10)
SOON: Final = timedelta(seconds=5)


class PreparedQueue:
    """A broker whose queue has copies in every place, and the calls of scripts it made."""

    def __init__(self, server: RedisServer, broker: RedisBroker, clock: ManualClock) -> None:
        self.server, self.broker, self.clock = server, broker, clock
        self.held: list[Delivery] = []
        self.keyed: list[Delivery] = []

    def now(self) -> datetime:
        return from_ms(self.clock.now_ms())

    def message(self, name: str, **fields: Any) -> Envelope:
        return seal(Message(id=MessageId(name), queue=Q, payload=name, created_at=self.now(), **fields))

    def later(self, name: str, **fields: Any) -> Envelope:
        return self.message(name, scheduling=Scheduling(deliver_at=self.now() + SOON), **fields)

    def expiring(self, name: str, after: timedelta = SOON, **fields: Any) -> Envelope:
        return self.message(name, expires_at=self.now() + after, **fields)

    async def pull(self, group: GroupName, limit: int) -> list[Delivery]:
        return await self.broker.pull(Q, group, worker="w", limit=limit, lease=LEASE)

    async def fill(self) -> None:
        """Have copies in lanes, parked, delayed, blocked, leased and dead, of both groups."""
        groups = [GroupSpec(name=G), GroupSpec(name=KEYED, message_ordering=True)]
        await self.broker.declare(QueueSpec(name=DEAD))
        await self.broker.declare(QueueSpec(name=Q, lanes=4, dead_letter_queue=DEAD, max_size=60), groups)
        await self.broker.publish([self.message(f"a{n}", ordering_key=f"k{n % 2}", priority=30 * n) for n in range(4)])
        for group in (G, KEYED):
            (first, *_) = await self.pull(group, 2)
            error = ProcessingError(message="no", timestamp=self.now())
            await self.broker.settle([GiveUp(first.ack_id, FailureKind.PERMANENT, error)])
        await self.broker.publish([self.message(f"b{n}", ordering_key=f"k{n % 2}") for n in range(6)])
        await self.broker.publish([self.later("l1", ordering_key="k9"), self.later("l2"), self.later("l2")])
        await self.broker.publish([self.expiring("e1", LEASE), self.expiring("e2"), self.expiring("e3", LEASE)])
        await self.broker.publish([self.expiring("e4", LEASE), self.expiring("e5", SOON)])
        self.held, self.keyed = await self.pull(G, 6), await self.pull(KEYED, 3)
        await self.broker.settle([Nack(self.held[0].ack_id, timedelta(0)), Nack(self.held[1].ack_id, SOON)])
        await self.broker.settle([Nack(self.keyed[0].ack_id, SOON)])
        await self.broker.shared.put("a", b"1", expected=None, ttl=SOON)
        await self.broker.shared.put("b", b"1", expected=None)


@asynccontextmanager
async def opened_queue(program: Program = "redis") -> AsyncIterator[PreparedQueue]:
    server, clock = fresh(program), ManualClock()
    async with RedisBroker(server.url, now=lambda: str(clock.now_ms())) as broker:
        prepared = PreparedQueue(server, broker, clock)
        await prepared.fill()
        yield prepared
