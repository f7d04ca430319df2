"""Chunks of one call that are under way together are stored in order, and none without the one before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import pytest

from godwit.brokers.contract import PUBLISH_CHUNK, Delivery
from godwit.brokers.redis import RedisBroker
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.errors import PartialPublish
from godwit.core.messages.envelope import Envelope
from godwit.core.names import DEFAULT_GROUP, GroupName, QueueName, new_message_id
from godwit.core.queues import GroupSpec, QueueSpec
from tests.servers.redis import RedisServer, redis_server

QUEUE: Final = QueueName("q")
OTHER: Final = QueueName("r")
LEASE: Final = timedelta(seconds=60)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as one:
        yield one


@pytest.fixture(autouse=True)
def empty(server: RedisServer) -> None:
    server.flush()


def envelopes(count: int, queue: QueueName = QUEUE, *, delay_ms: int | None = None) -> list[Envelope]:
    now_ms = SYSTEM_CLOCK.now_ms()
    due_ms = None if delay_ms is None else now_ms + delay_ms
    return [Envelope(new_message_id(), queue, b"body", 4, now_ms, deliver_at_ms=due_ms) for _ in range(count)]


async def all_of(broker: RedisBroker, queue: QueueName = QUEUE, group: GroupName = DEFAULT_GROUP) -> list[str]:
    """Return the ids of all that waits, in the order in which it is delivered."""
    found: list[Delivery] = []
    while got := await broker.pull(queue, group, worker="w", limit=200, lease=LEASE):
        found += got
    return [one.envelope.id for one in found]


def ids(messages: list[Envelope]) -> list[str]:
    return [message.id for message in messages]


async def test_many_chunks_are_stored_in_order_for_every_group(server: RedisServer) -> None:
    groups = [GroupName("a"), GroupName("b")]
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=QUEUE), [GroupSpec(name=group) for group in groups])
        sent = envelopes(5 * PUBLISH_CHUNK + 1)  # the last chunk is a single message
        receipts = await broker.publish(sent)
        assert [(one.id, one.fresh) for one in receipts] == [(message.id, True) for message in sent]
        for group in groups:
            assert await all_of(broker, group=group) == ids(sent)


async def test_a_chunk_that_would_fit_is_not_stored_behind_one_that_does_not(server: RedisServer) -> None:
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=QUEUE, max_size=PUBLISH_CHUNK + 50))
        sent = envelopes(2 * PUBLISH_CHUNK + 10)
        with pytest.raises(PartialPublish) as refused:
            await broker.publish(sent)
        assert list(refused.value.accepted) == ids(sent[:PUBLISH_CHUNK])
        assert await all_of(broker) == ids(sent[:PUBLISH_CHUNK])


async def test_a_repetition_at_the_end_of_a_chunk_does_not_let_the_next_one_pass(server: RedisServer) -> None:
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=QUEUE))
        sent = envelopes(3 * PUBLISH_CHUNK)
        last = sent[2 * PUBLISH_CHUNK - 1]
        await broker.publish([last])
        receipts = await broker.publish(sent)
        assert [one.id for one in receipts if not one.fresh] == [last.id]
        assert await all_of(broker) == [last.id, *(one for one in ids(sent) if one != last.id)]


async def test_a_call_sent_again_is_known_as_a_whole(server: RedisServer) -> None:
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=QUEUE))
        sent = envelopes(3 * PUBLISH_CHUNK)
        await broker.publish(sent)
        assert not any(one.fresh for one in await broker.publish(sent))
        assert await all_of(broker) == ids(sent)


async def test_scripts_that_the_server_forgot_change_nothing(server: RedisServer) -> None:
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=QUEUE))
        with server.client() as client:
            client.script_flush()
        sent = envelopes(4 * PUBLISH_CHUNK)
        assert all(one.fresh for one in await broker.publish(sent))
        assert await all_of(broker) == ids(sent)


async def test_chunks_of_another_kind_and_queue_keep_their_place(server: RedisServer) -> None:
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=QUEUE))
        await broker.declare(QueueSpec(name=OTHER))
        ready, later, other = (
            envelopes(PUBLISH_CHUNK + 5),
            envelopes(PUBLISH_CHUNK, delay_ms=60_000),
            envelopes(5, OTHER),
        )
        more = envelopes(PUBLISH_CHUNK)
        receipts = await broker.publish([*ready, *later, *more, *other])
        assert [one.id for one in receipts if one.fresh] == ids([*ready, *later, *more, *other])
        assert await all_of(broker) == ids([*ready, *more])
        assert await all_of(broker, OTHER) == ids(other)


async def test_calls_that_share_one_connection_all_get_their_turn(server: RedisServer) -> None:
    async with RedisBroker(server.url, max_connections=1) as broker:
        await broker.declare(QueueSpec(name=QUEUE))
        calls = [envelopes(3 * PUBLISH_CHUNK) for _ in range(4)]
        await asyncio.gather(*(broker.publish(call) for call in calls))
        stored = await all_of(broker)
        for call in calls:
            own = set(ids(call))
            assert [one for one in stored if one in own] == ids(call)


async def test_a_caller_that_goes_away_leaves_the_beginning_of_its_call(server: RedisServer) -> None:
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=QUEUE))
        sent = envelopes(20 * PUBLISH_CHUNK)
        publishing = asyncio.create_task(broker.publish(sent))
        await asyncio.sleep(0)  # the first chunks are on their way
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        after = envelopes(1)
        await broker.publish(after)  # behind them: the connection is used again when they are answered
        stored = await all_of(broker)
        assert stored.count(after[0].id) == 1
        stored.remove(after[0].id)
        assert stored == ids(sent[: len(stored)])
