"""What becomes of messages that a memory broker still holds when it is closed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.contract import Ack
from godwit.brokers.memory import MemoryBroker
from godwit.brokers.urls import connect
from godwit.core.clock import ManualClock, from_ms
from godwit.core.errors import BrokerClosed, BrokerUnavailable, InvalidSetting
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message, Scheduling
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.manager import MessageQueueManager
from tests.logs import capture_logs

Q = QueueName("q")
A, B = GroupName("a"), GroupName("b")
LEASE = timedelta(hours=11)


def message(name: str, clock: ManualClock, **fields: object) -> Message:
    return Message(queue=Q, id=MessageId(name), created_at=from_ms(clock.now_ms()), **fields)  # type: ignore[arg-type]


async def pulled(broker: MemoryBroker, group: GroupName) -> list[str]:
    deliveries = await broker.pull(Q, group, worker="w", limit=100, lease=LEASE)
    return [delivery.message_id for delivery in deliveries]


async def test_what_is_left_is_there_at_the_next_start_for_the_groups_that_lacked_it(tmp_path: Path) -> None:
    file, clock = tmp_path / "left.db", ManualClock()
    async with MemoryBroker(clock=clock, spill=file) as broker:
        await broker.declare(QueueSpec(name=Q, ttl=timedelta(hours=1)), [GroupSpec(name=A), GroupSpec(name=B)])
        due = from_ms(clock.now_ms() + 60_000)
        later = message("later", clock, scheduling=Scheduling(deliver_at=due))
        await broker.publish([seal(message(name, clock, priority=90 if name == "c" else 50)) for name in "abcd"])
        await broker.publish([seal(later)])
        first, second = await broker.pull(Q, A, worker="w", limit=2, lease=LEASE)
        assert [first.message_id, second.message_id] == ["c", "a"]
        await broker.settle([Ack(first.ack_id)])  # `second` stays leased: its holder ends with the process
    async with MemoryBroker(clock=clock, spill=file) as broker:
        assert await pulled(broker, A) == ["a", "b", "d"]
        assert await pulled(broker, B) == ["c", "a", "b", "d"]
        clock.advance(timedelta(seconds=60))
        await broker.maintain()
        assert await pulled(broker, A) == ["later"]
        (stats,) = await broker.stats()
        assert [group.leased for group in stats.groups] == [4, 4]
        clock.advance(timedelta(hours=2))
        await broker.maintain()
        (stats,) = await broker.stats()
        assert [group.dead for group in stats.groups] == [0, 1], "the queue's ttl still counts, for what waits"
        deliveries = [one.ack_id for one in await broker.pull(Q, B, worker="w", limit=9, lease=LEASE)]
        assert deliveries == []
        await broker.remove(Q)
    async with MemoryBroker(clock=clock, spill=file) as broker:
        assert await broker.stats() == [], "nothing is taken in twice"


async def test_what_was_taken_in_is_saved_again(tmp_path: Path) -> None:
    url = f"memory://?spill={tmp_path}/left.db"
    async with connect(url) as broker:
        await broker.declare(QueueSpec(name=Q))
        await broker.publish([seal(Message(queue=Q, payload=number)) for number in range(450)])
    for _ in range(2):
        async with connect(url) as broker:
            assert (await broker.stats())[0].groups[0].ready == 450
    async with MessageQueueManager.from_url(url) as mq:
        assert len(await mq.dequeue("q", limit=1000)) == 450


async def test_without_a_file_a_warning_counts_what_is_lost() -> None:
    with capture_logs() as lines:
        async with connect("memory://") as broker:
            await broker.declare(QueueSpec(name=Q))
            await broker.publish([seal(Message(queue=Q)) for _ in range(3)])
        await broker.close()
    assert [(line["event"], line["count"]) for line in lines] == [("messages lost with the memory broker", 3)]


async def test_nothing_is_said_when_nothing_is_left(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with connect("memory://") as broker:
            await broker.declare(QueueSpec(name=Q))
        async with connect(f"memory://?spill={tmp_path}/left.db"):
            pass
    assert lines == []
    assert not (tmp_path / "left.db").exists()


@pytest.mark.parametrize("url", ["memory://host", "memory:///path", "memory://?spil=a.db", "memory://?spill="])
def test_an_address_that_says_more_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match="spill"):
        connect(url)


async def test_a_file_that_cannot_be_used_is_refused_at_start(tmp_path: Path) -> None:
    (tmp_path / "no.db").write_text("this is no database at all, and it is long enough to be read as one")
    with pytest.raises(BrokerUnavailable, match="spill"):
        await connect(f"memory://?spill={tmp_path}/no.db").__aenter__()


async def test_from_the_moment_closing_began_enqueue_is_refused(tmp_path: Path) -> None:
    mq = MessageQueueManager.from_url(f"memory://?spill={tmp_path}/left.db")
    async with mq:
        await mq.broker.declare(QueueSpec(name=Q))
        await mq.enqueue(Message(queue=Q))
        await mq.close()
        for _ in range(7):  # more often than the breaker around publishing would bear
            with pytest.raises(BrokerClosed):
                await mq.enqueue(Message(queue=Q))
