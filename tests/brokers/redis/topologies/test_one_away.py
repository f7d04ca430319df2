"""A cluster of which one master is gone, or one slot is moving: what concerns other queues goes on."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta

import pytest

from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.client.topology import slot_of
from godwit.brokers.redis.layout import keys
from godwit.core.clock import utc_now
from godwit.core.errors import BrokerUnavailable
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message, Scheduling
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import QueueSpec
from godwit.runtime.worker.maintenance import Maintenance
from tests.servers.processes import HOST
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster, fresh_cluster
from tests.servers.redis_topologies import ask
from tests.waiting import eventually, real_time

pytestmark = pytest.mark.xdist_group("redis-cluster")

G = GroupName("default")
LEASE, SOON = timedelta(seconds=60), timedelta(milliseconds=50)
PLACES = (keys.QUEUES, keys.SHARED[0])
"""Keys whose masters go away, each with some queues: the list of queues, the shared values."""


def message(queue: QueueName) -> Envelope:
    return seal(Message(queue=queue, scheduling=Scheduling(deliver_at=utc_now() + SOON)))


@asynccontextmanager
async def filled(cluster: RedisCluster) -> AsyncIterator[tuple[RedisBroker, dict[int, list[QueueName]]]]:
    """Have queues with a delayed message on each master; give their names by its port."""
    await eventually(lambda: all("cluster_state:ok" in ask(server, "CLUSTER", "INFO") for server in cluster.masters))
    async with RedisBroker(cluster.url, patience=timedelta(milliseconds=500)) as broker:
        homes: dict[int, list[QueueName]] = {}
        for number in range(9):
            name = QueueName(f"q{number}")
            await broker.declare(QueueSpec(name=name))
            await broker.publish([message(name)])
            homes.setdefault(cluster.server_of(slot_of(keys.part(name, "meta"))).port, []).append(name)
        assert len(homes) == 3
        assert len(await broker.stats()) == 9
        await real_time(SOON)
        yield broker, homes


@contextmanager
def gone(cluster: RedisCluster, key: str) -> Iterator[RedisServer]:
    """Kill the master of a key, and start it again."""
    server = cluster.server_of(slot_of(key))
    server.kill()
    try:
        yield server
    finally:
        server.start()


@pytest.mark.parametrize("key", PLACES)
async def test_one_master_that_is_gone_stops_no_queue_of_the_others(key: str) -> None:
    cluster = fresh_cluster()
    async with filled(cluster) as (broker, homes):
        with gone(cluster, key) as server:
            there = {name for port, names in homes.items() if port != server.port for name in names}
            began = time.monotonic()
            await Maintenance(broker, "worker").tick()
            assert {queue.name for queue in await broker.stats()} == there
            assert {queue.groups[0].ready for queue in await broker.stats()} == {1}, "what was due has been moved"
            assert {shard.partition("#")[0] for shard in await broker.journal.shards()} == there
            assert time.monotonic() - began < 20
            (delivery,) = await broker.pull(min(there), G, worker="w", limit=1, lease=LEASE)
            assert delivery.queue == min(there)
            assert len(await broker.specs()) >= len(there)
            gone_queue = next(iter(homes[server.port]))
            with pytest.raises(BrokerUnavailable):
                await broker.publish([message(gone_queue)])

        async def back() -> bool:
            return len(await broker.stats()) == 9

        await eventually(back)


async def test_a_slot_that_is_moving_concerns_its_queue_alone() -> None:
    cluster = fresh_cluster()
    async with filled(cluster) as (broker, _):
        moving = QueueName("q0")
        slot = slot_of(keys.part(moving, "meta"))
        source = cluster.server_of(slot)
        target = next(server for server in cluster.masters if server is not source)
        ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.node_id(source))
        ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.node_id(target))
        try:
            for _ in range(2):
                (key,) = ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 1)
                ask(source, "MIGRATE", HOST, target.port, key, 0, 5_000)
                with suppress(BrokerUnavailable):
                    await broker.maintain()
                others = {f"q{number}" for number in range(1, 9)}
                assert {queue.name for queue in await broker.stats()} >= others
                assert {shard.partition("#")[0] for shard in await broker.journal.shards()} >= others
        finally:
            cluster.move_slot(slot, target)
        await broker.maintain()
        assert {queue.groups[0].ready + queue.groups[0].leased for queue in await broker.stats()} == {1}
        assert len(await broker.stats()) == 9
