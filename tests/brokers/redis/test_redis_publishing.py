"""What a publish costs the server: commands per chunk, not per message, also where every message expires."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import pytest

from godwit.brokers.contract import PUBLISH_CHUNK, Ack
from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.layout import keys
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.messages.envelope import Envelope
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


async def commands_of(
    server: RedisServer, ttl: timedelta | None, count: int, *, max_delayed: int = 1_000_000
) -> dict[str, int]:
    """Return how often a publish of so many messages runs each command."""
    server.flush()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=QUEUE, ttl=ttl, max_delayed=max_delayed))
        await broker.publish(envelopes(1))  # the script is loaded
        with server.client() as client:
            client.config_resetstat()
            await broker.publish(envelopes(count))
            stats = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): value["calls"] for name, value in stats.items()}


async def test_a_chunk_of_a_queue_with_a_ttl_writes_no_more_than_one_without(server: RedisServer) -> None:
    without = await commands_of(server, None, PUBLISH_CHUNK)
    with_ttl = await commands_of(server, timedelta(days=1), PUBLISH_CHUNK)
    assert without["xadd"] == PUBLISH_CHUNK + 1  # the messages, and one entry of the journal
    assert with_ttl == without


@pytest.mark.parametrize("count", [1, PUBLISH_CHUNK])
async def test_a_queue_deeper_than_max_delayed_takes_no_longer_way(server: RedisServer, count: int) -> None:
    assert await commands_of(server, None, count, max_delayed=1) == await commands_of(server, None, count)


async def test_one_message_takes_few_commands(server: RedisServer) -> None:
    found = await commands_of(server, timedelta(days=1), 1)
    own = {name: calls for name, calls in found.items() if name not in {"config|resetstat", "info", "client|setinfo"}}
    assert own.pop("evalsha") == 1
    assert sum(own.values()) <= 7, own


async def test_what_expires_is_delivered_in_order_and_leaves_nothing_behind(server: RedisServer) -> None:
    server.flush()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=QUEUE, ttl=timedelta(days=1)))
        sent = [*envelopes(3), *envelopes(2, priority=95)]
        await broker.publish(sent)
        got = await broker.pull(QUEUE, DEFAULT_GROUP, worker="w", limit=10, lease=LEASE)
        assert [one.envelope for one in got] == [*sent[3:], *sent[:3]]
        with server.client() as client:
            (expiring,) = [key for key in keys.block(QUEUE, DEFAULT_GROUP) if ":expiring:" in key]
            assert set(client.zrange(expiring, 0, -1)) == {b"L1", b"L3"}  # lanes, not messages
            assert await broker.settle([Ack(one.ack_id) for one in got]) == []
            await broker.maintain()
            assert not client.exists(expiring)


async def test_messages_that_expire_out_of_order_do_so_at_their_time(server: RedisServer) -> None:
    server.flush()
    now = [SYSTEM_CLOCK.now_ms()]
    async with RedisBroker(server.url, now=lambda: str(now[0])) as broker:
        await broker.declare(QueueSpec(name=QUEUE))
        sent = [
            Envelope(new_message_id(), QUEUE, b"body", 4, now[0], expires_at_ms=now[0] + after)
            for after in (300, 500, 100, 400, 500, 700, 200)
        ]
        await broker.publish(sent[:4])
        for one in sent[4:]:
            await broker.publish([one])
        for passed, gone in ((150, {2}), (350, {0, 2, 6}), (500, {0, 1, 2, 3, 4, 6})):
            now[0] = sent[0].created_at_ms + passed
            await broker.maintain()
            letters = await broker.dead_letters.page(QUEUE)
            assert {letter.envelope.id for letter in letters} == {sent[place].id for place in gone}
        got = await broker.pull(QUEUE, DEFAULT_GROUP, worker="w", limit=10, lease=LEASE)
        assert [one.envelope for one in got] == [sent[5]]


async def test_what_expires_behind_a_long_lane_of_what_does_not_is_found(server: RedisServer) -> None:
    server.flush()
    now = [SYSTEM_CLOCK.now_ms()]
    async with RedisBroker(server.url, now=lambda: str(now[0])) as broker:
        await broker.declare(QueueSpec(name=QUEUE))
        await broker.publish(envelopes(2_500))
        last = Envelope(new_message_id(), QUEUE, b"body", 4, now[0], expires_at_ms=now[0] + 100)
        await broker.publish([last])
        now[0] += 100
        for _ in range(3):
            await broker.maintain()
        assert [letter.envelope.id for letter in await broker.dead_letters.page(QUEUE)] == [last.id]
        stats = await broker.stats()
        assert stats[0].groups[0].ready == 2_500
