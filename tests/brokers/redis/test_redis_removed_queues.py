"""Removed queues: what they leave is looked at now and then, costs the upkeep nothing, and goes in the end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import redis

from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.client.client import RedisClient
from godwit.brokers.redis.layout import keys
from godwit.core.clock import ManualClock
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import QueueSpec
from tests.servers.redis import fresh

Q, OTHER, G = QueueName("orders"), QueueName("other"), GroupName("default")
LEASE, DAY = timedelta(seconds=15), timedelta(days=1)
MANY: Final = 40


def message(queue: QueueName = Q) -> Envelope:
    return seal(Message(queue=queue, payload="x"))


def broker_of(server: Any, clock: ManualClock) -> RedisBroker:
    return RedisBroker(server.url, now=lambda: str(clock.now_ms()))


def names(client: redis.Redis) -> set[str]:
    found: Any = client.keys()
    return {key.decode() for key in found}


class Commands:
    """How many commands and scripts of a broker are sent, each counted."""

    def __init__(self, broker: RedisBroker) -> None:
        self.sent = 0
        servers: RedisClient = broker._servers
        each, patiently = servers._each, servers._patiently

        async def counted_each(commands: Any, *words: Any, **more: Any) -> Any:
            self.sent += len(commands)
            return await each(commands, *words, **more)

        async def counted(commands: Any, *words: Any, **more: Any) -> Any:
            self.sent += len(commands)
            return await patiently(commands, *words, **more)

        servers._each, servers._patiently = counted_each, counted  # type: ignore[method-assign]


async def test_an_upkeep_of_many_removed_queues_costs_what_one_of_none_costs() -> None:
    server, clock = fresh(), ManualClock()
    async with broker_of(server, clock) as broker:
        await broker.declare(QueueSpec(name=OTHER))
        await broker.maintain()
        commands = Commands(broker)
        await broker.maintain()
        before, commands.sent = commands.sent, 0
        for number in range(MANY):
            name = QueueName(f"q{number}")
            await broker.declare(QueueSpec(name=name))
            await broker.publish([message(name)])
            await broker.remove(name)
        await broker.maintain()  # sets them aside
        await broker.maintain()  # and looks at each once
        commands.sent = 0
        await broker.maintain()
        assert commands.sent == before
        assert len(await broker.journal.shards()) == MANY + 1
        commands.sent = 0
        await broker.journal.shards()
        assert commands.sent < MANY, "what removed queues hold is not asked each time"


async def test_a_removed_queue_whose_journal_is_gone_leaves_its_counters_alone() -> None:
    server, clock = fresh(), ManualClock()
    async with broker_of(server, clock) as broker:
        with server.client() as client:
            await broker.declare(QueueSpec(name=Q))
            await broker.publish([message()])
            before = (await broker.journal.shards())[f"{Q}#0"]
            await broker.remove(Q)
            client.delete(keys.wake(Q, G))  # ends by itself, by the server's clock
            for _ in range(2):
                clock.advance(DAY)
                await broker.maintain()
            await broker.maintain()
            assert {key for key in names(client) if Q in key} == {keys.step(Q)[0]}
            assert await broker.journal.shards() == {}
            clock.advance(DAY)
            assert await broker.maintain() == 0
        await broker.declare(QueueSpec(name=Q))
        await broker.publish([message()])
        after = (await broker.journal.shards())[f"{Q}#0"]
        assert (after.epoch, after.first_seq) == (before.epoch, after.last_seq - 2)
        assert after.last_seq > before.last_seq
        (delivery,) = await broker.pull(Q, G, worker="w", limit=1, lease=LEASE)
        assert delivery.publish_seq == 2


async def test_a_queue_declared_while_it_is_set_aside_stays_listed() -> None:
    server, clock = fresh(), ManualClock()
    async with broker_of(server, clock) as broker, broker_of(server, clock) as other:
        await broker.declare(QueueSpec(name=Q))
        await broker.remove(Q)
        declare = other._catalog._declare

        async def interrupted(*words: Any, **more: Any) -> bool:
            await broker.maintain()  # finds it listed, and no queue yet
            return await declare(*words, **more)

        other._catalog._declare = interrupted  # type: ignore[method-assign]
        await other.declare(QueueSpec(name=Q))
        await broker.maintain()
        assert list(await broker.specs()) == [Q]
        assert [queue.name for queue in await broker.stats()] == [Q]
        with server.client() as client:
            client.zrem(keys.QUEUES, Q)
        await other.declare(QueueSpec(name=Q))
        assert list(await broker.specs()) == [Q], "declaring again lists a queue that was lost from the list"


async def test_rows_of_a_removed_queue_are_read_until_they_are_trimmed() -> None:
    server, clock = fresh(), ManualClock()
    async with broker_of(server, clock) as broker:
        await broker.declare(QueueSpec(name=Q))
        await broker.remove(Q)
        for _ in range(3):
            await broker.maintain()
            assert len(await broker.journal.read(f"{Q}#0")) == 3
            assert (await broker.journal.shards())[f"{Q}#0"].last_seq == 3
