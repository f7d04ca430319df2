"""The parts of a round of upkeep: none keeps those behind it waiting, and every queue gets its turn."""

from __future__ import annotations

from datetime import timedelta

import pytest

from godwit.brokers.contract import GiveUp
from godwit.brokers.redis import RedisBroker, maintain
from godwit.core.clock import ManualClock, from_ms
from godwit.core.failures.failure import FailureKind
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message, Scheduling
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import QueueSpec
from tests.servers.redis import fresh

Q, G = QueueName("orders"), GroupName("default")
NAMES = [QueueName(name) for name in ("a", "b", "c")]
LEASE = timedelta(seconds=60)


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each part of a round end as soon as it may."""
    monkeypatch.setattr(maintain, "PART_SECONDS", 0.0)
    monkeypatch.setattr(maintain, "PART_MESSAGES", 200)


async def depths(broker: RedisBroker) -> dict[str, int]:
    return {queue.name: queue.groups[0].depth for queue in await broker.stats()}


@pytest.mark.usefixtures("short_parts")
async def test_inboxes_that_do_not_end_leave_the_rest_of_a_round_its_turn() -> None:
    server, clock = fresh(), ManualClock()
    async with RedisBroker(server.url, now=lambda: str(clock.now_ms())) as broker:
        for name in NAMES:
            await broker.declare(QueueSpec(name=name))
        with server.client() as client, client.pipeline(transaction=False) as pipe:
            for name in NAMES:
                for number in range(500):
                    pipe.xadd(name, {"payload": str(number)})
            pipe.execute()
        await broker.shared.put("short", b"1", expected=None, ttl=timedelta(seconds=1))
        clock.advance(timedelta(days=2))
        assert await broker.maintain() == 200
        with server.client() as client:
            assert client.hlen("godwit:{#shared}:values") == 1, "what is past its time was not forgotten"
        assert sorted((await depths(broker)).values()) == [0, 0, 200]
        for _ in range(2):
            await broker.maintain()
        assert await depths(broker) == dict.fromkeys(NAMES, 200), "a queue is moved twice before another"
        for _ in range(6):
            await broker.maintain()
        assert await depths(broker) == dict.fromkeys(NAMES, 500)


@pytest.mark.usefixtures("short_parts")
async def test_a_crowd_that_is_due_leaves_the_rest_of_a_round_its_turn() -> None:
    server, clock = fresh(), ManualClock()
    async with RedisBroker(server.url, now=lambda: str(clock.now_ms())) as broker:
        await broker.declare(QueueSpec(name=Q))
        due = from_ms(clock.now_ms()) + timedelta(seconds=1)
        await broker.publish([seal(Message(queue=Q, scheduling=Scheduling(deliver_at=due))) for _ in range(1_000)])
        clock.advance(timedelta(seconds=2))
        rounds = 0
        while (await broker.stats())[0].groups[0].delayed:
            assert await broker.maintain() <= 200
            rounds += 1
        assert rounds == 5


@pytest.mark.usefixtures("short_parts")
async def test_dead_letters_are_fed_in_portions() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=QueueName("dead")))
        await broker.declare(QueueSpec(name=Q, dead_letter_queue=QueueName("dead")))
        await broker.publish([seal(Message(queue=Q)) for _ in range(500)])
        for _ in range(3):
            found = await broker.pull(Q, G, worker="w", limit=200, lease=LEASE)
            await broker.settle([GiveUp(one.ack_id, FailureKind.PERMANENT) for one in found])
        fed = []
        for _ in range(3):
            await broker.maintain()
            fed.append((await depths(broker))["dead"])
        assert fed == [200, 400, 500]
