"""What a publish costs the server: commands per chunk, not per message, also where every message expires."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import pytest

from godwit.brokers.contract import PUBLISH_CHUNK
from godwit.brokers.redis import RedisBroker, keys
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.envelope import Envelope
from godwit.core.names import DEFAULT_GROUP, QueueName, new_message_id
from godwit.core.queues import QueueSpec
from tests.servers.redis import RedisServer, redis_server

QUEUE: Final = QueueName("q")
LEASE: Final = timedelta(seconds=30)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as one:
        yield one


def envelopes(count: int, *, priority: int = 50) -> list[Envelope]:
    now_ms = SYSTEM_CLOCK.now_ms()
    return [Envelope(new_message_id(), QUEUE, b"body", 4, now_ms, priority=priority) for _ in range(count)]


async def commands_of(server: RedisServer, ttl: timedelta | None, count: int) -> dict[str, int]:
    """Return how often a publish of so many messages runs each command."""
    server.flush()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=QUEUE, ttl=ttl))
        await broker.publish(envelopes(1))  # the script is loaded
        with server.client() as client:
            client.config_resetstat()
            await broker.publish(envelopes(count))
            stats = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): value["calls"] for name, value in stats.items()}


async def test_a_chunk_of_a_queue_with_a_ttl_takes_one_command_more_than_one_without(server: RedisServer) -> None:
    without = await commands_of(server, None, PUBLISH_CHUNK)
    with_ttl = await commands_of(server, timedelta(days=1), PUBLISH_CHUNK)
    assert without["xadd"] == PUBLISH_CHUNK + 1  # the messages, and one entry of the journal
    assert with_ttl == without | {"zadd": without["zadd"] + 1}


async def test_one_message_takes_few_commands(server: RedisServer) -> None:
    found = await commands_of(server, timedelta(days=1), 1)
    own = {name: calls for name, calls in found.items() if name not in {"config|resetstat", "info", "client|setinfo"}}
    assert own.pop("evalsha") == 1
    assert sum(own.values()) <= 18, own


async def test_what_expires_is_delivered_in_order_and_leaves_nothing_behind(server: RedisServer) -> None:
    server.flush()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=QUEUE, ttl=timedelta(days=1)))
        sent = [*envelopes(3), *envelopes(2, priority=95)]
        await broker.publish(sent)
        got = await broker.pull(QUEUE, DEFAULT_GROUP, worker="w", limit=10, lease=LEASE)
        assert [one.envelope for one in got] == [*sent[3:], *sent[:3]]
        with server.client() as client:
            assert client.exists(*(key for key in keys.block(QUEUE, DEFAULT_GROUP) if ":expiring:" in key)) == 0
