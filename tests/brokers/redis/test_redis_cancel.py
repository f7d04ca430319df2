"""Cancelling in a long queue: the server looks through it in steps, and others work on it between two of them."""

from __future__ import annotations

from datetime import timedelta

from godwit.brokers.contract import Ack, Delivery
from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.client.scripts import script
from godwit.brokers.redis.layout import keys
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import QueueSpec
from tests.servers.redis import RedisServer, fresh

Q, G = QueueName("orders"), GroupName("default")
LEASE = timedelta(seconds=15)
MANY = 2_500


def message(name: str) -> Envelope:
    return seal(Message(id=MessageId(name), queue=Q, payload=name))


async def filled(broker: RedisBroker, *names: str) -> None:
    """Publish messages, each behind a crowd of others."""
    await broker.declare(QueueSpec(name=Q, dedup_window=timedelta(0)))
    for number, name in enumerate(names):
        for start in range(0, MANY // len(names), 200):
            await broker.publish([message(f"m{number}-{start + n}") for n in range(200)])
        await broker.publish([message(name)])


def step(server: RedisServer, wanted: str, place: bytes) -> tuple[int, bytes]:
    """Take one step of a cancellation, as `RedisBroker.cancel` does."""
    names = (*keys.step(Q), *keys.block(Q, G))
    with server.client() as client:
        count, place = client.eval(script("cancel").source, len(names), *names, "", Q, G, wanted, place, "", "")
    return count, place


async def everything(broker: RedisBroker) -> list[Delivery]:
    found: list[Delivery] = []
    while len(part := await broker.pull(Q, G, worker="w", limit=1_000, lease=LEASE)):
        found += part
    return found


async def test_a_message_leased_between_two_steps_of_its_cancellation_is_not_deleted() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await filled(broker, "a")
        _, place = step(server, "a", b"")
        assert place != b""
        held = await everything(broker)
        while place:
            count, place = step(server, "a", place)
            assert count == 0, "a leased copy was deleted"
        assert held[-1].message_id == "a"
        assert await broker.settle([Ack(one.ack_id) for one in held]) == []
        assert (await broker.stats())[0].groups[0].depth == 0
        await broker.publish([message("later")])
        (later,) = await broker.pull(Q, G, worker="w", limit=10, lease=LEASE)
        assert later.message_id == "later"


async def test_a_cancellation_in_steps_finds_every_copy_once() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await filled(broker, "a", "a", "a")
        depth = (await broker.stats())[0].groups[0].depth
        found, place = 0, b""
        while True:
            count, place = step(server, "a", place)
            found += count
            if not place:
                break
            await broker.pull(Q, G, worker="w", limit=10, lease=LEASE)
        assert found == 3
        assert (await broker.stats())[0].groups[0].depth == depth - 3
