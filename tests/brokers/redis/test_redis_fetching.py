"""A pull that waits on the server: a message comes without another round trip, and no message is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import pytest

from godwit.brokers.contract import Ack, Delivery
from godwit.brokers.redis import RedisBroker
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.journal.chunks import decode_chunk
from godwit.core.journal.shards import shard_name
from godwit.core.messages.envelope import Envelope
from godwit.core.names import DEFAULT_GROUP, QueueName, new_message_id
from godwit.core.queues import QueueSpec
from tests.servers.redis import RedisServer, redis_server
from tests.waiting import eventually, soon

QUEUE: Final = QueueName("q")
LEASE: Final = timedelta(seconds=30)
LONG: Final = timedelta(seconds=20)
SOON: Final = timedelta(seconds=3)


@pytest.fixture(scope="module")
def servers() -> Iterator[RedisServer]:
    with redis_server() as one:
        yield one


@pytest.fixture
def server(servers: RedisServer) -> RedisServer:
    servers.flush()
    return servers


def envelope() -> Envelope:
    return Envelope(new_message_id(), QUEUE, b"body", 4, SYSTEM_CLOCK.now_ms())


async def pull(broker: RedisBroker, *, wait: timedelta = LONG, worker: str = "w", limit: int = 5) -> list[Delivery]:
    return await broker.pull(QUEUE, DEFAULT_GROUP, worker=worker, limit=limit, lease=LEASE, wait=wait)


async def waiting(broker: RedisBroker, server: RedisServer, **options: Any) -> asyncio.Task[list[Delivery]]:
    """Return a pull that waits on the server."""
    before = blocked(server)
    task = asyncio.create_task(pull(broker, **options))
    await eventually(lambda: blocked(server) > before, what="a pull that waits on the server")
    return task


def blocked(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.info("clients")["blocked_clients"])


def scripts_run(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])


async def events(broker: RedisBroker) -> list[str]:
    chunks = [decode_chunk(chunk) for chunk in await broker.journal.read(shard_name(QUEUE))]
    return [chunk.event for chunk in chunks if chunk.group == DEFAULT_GROUP and chunk.event != "group_created"]


async def test_the_message_comes_without_another_round_trip(server: RedisServer) -> None:
    async with RedisBroker(server.url) as broker, RedisBroker(server.url) as other:
        await broker.declare(QueueSpec(name=QUEUE))
        for _ in range(2):
            await other.publish([envelope()])  # the queue is known and the script is loaded
        first = await pull(broker)
        assert await broker.settle([Ack(one.ack_id) for one in first]) == []
        task = await waiting(broker, server)
        before = scripts_run(server)
        sent = envelope()
        await other.publish([sent])
        (got,) = await task
        assert got.envelope == sent
        assert got.attempt == 1
        assert scripts_run(server) - before == 2  # one stored it, one leased it
        assert await broker.settle([Ack(got.ack_id)]) == []


async def test_whoever_went_away_gets_nothing(server: RedisServer) -> None:
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=QUEUE))
        task = await waiting(broker, server)
        task.cancel()
        await asyncio.wait([task])
        await broker.publish([envelope()])
        (got,) = await pull(broker, wait=timedelta(0))
        assert got.attempt == 1
        assert await events(broker) == ["enqueued", "delivered"]


async def test_a_pull_that_ran_out_of_time_takes_nothing_later(server: RedisServer) -> None:
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=QUEUE))
        for _ in range(20):
            assert await pull(broker, wait=timedelta(milliseconds=20)) == []
            await broker.publish([envelope()])
            (got,) = await pull(broker, wait=timedelta(0))
            assert got.attempt == 1
        assert "handed_back" not in await events(broker)


async def test_a_broker_that_closes_leaves_no_pull_behind(server: RedisServer) -> None:
    async with RedisBroker(server.url) as other:
        async with RedisBroker(server.url) as broker:
            await broker.declare(QueueSpec(name=QUEUE))
            task = await waiting(broker, server)
        await asyncio.wait([task])
        await other.publish([envelope()])
        (got,) = await pull(other, wait=timedelta(0))
        assert got.attempt == 1


async def test_what_nobody_asks_for_is_handed_back(server: RedisServer) -> None:
    async with RedisBroker(server.url) as broker, RedisBroker(server.url) as other:
        await broker.declare(QueueSpec(name=QUEUE))
        assert await pull(broker, wait=timedelta(milliseconds=50)) == []  # takes the marker of the declaration
        listener = broker.listen([(QUEUE, DEFAULT_GROUP)])
        listener.clear()
        listener.expect(worker="w", limit=1, lease=LEASE)
        heard = asyncio.create_task(listener.wait(LONG))
        await eventually(lambda: blocked(server) == 1, what="a pull that waits on the server")
        await other.publish([envelope()])
        assert await heard
        (got,) = await pull(other, wait=SOON, worker="other")
        assert got.crashes == 0
        assert await events(broker) == ["enqueued", "delivered", "handed_back", "delivered"]
        listener.close()


async def test_a_burst_is_for_all_who_wait(server: RedisServer) -> None:
    async with RedisBroker(server.url) as one, RedisBroker(server.url) as two:
        await one.declare(QueueSpec(name=QUEUE))
        tasks = [await waiting(one, server, limit=50), await waiting(two, server, limit=50)]
        await one.publish([envelope() for _ in range(100)])
        found = [await task for task in tasks]
        assert all(found)


@pytest.mark.parametrize("round_", range(5))
async def test_a_connection_that_breaks_loses_nothing(server: RedisServer, round_: int) -> None:
    async with RedisBroker(server.url) as broker, RedisBroker(server.url) as other:
        await broker.declare(QueueSpec(name=QUEUE))
        task = await waiting(broker, server, worker=f"w{round_}")
        sent = envelope()
        with server.client() as client:
            doomed = [one["id"] for one in client.client_list() if one["cmd"] == "bzpopmin"]
            publishing = asyncio.create_task(other.publish([sent]))
            await asyncio.sleep(0)
            for one in doomed:
                client.execute_command("CLIENT", "KILL", "ID", one)
        await publishing
        (got,) = await soon(task, SOON.total_seconds())
        assert got.envelope == sent
        assert got.crashes == 0
