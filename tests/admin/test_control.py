"""Pausing, draining, resuming and purging, with workers and producers that obey."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.admin.control import Hold, QueueControl, holds, read_hold
from godwit.brokers.contract import Broker, SharedEntry
from godwit.brokers.memory import MemoryBroker
from godwit.brokers.urls import connect
from godwit.core.clock import ManualClock, from_ms
from godwit.core.errors import BrokerUnavailable, GroupNotFound, QueueDraining, QueueNotFound
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.vocabulary import HOLDS, Event
from godwit.core.messages.envelope import seal_all
from godwit.core.messages.message import Message
from godwit.core.names import DEFAULT_GROUP, GroupName, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.core.shared_keys import drain_key, pause_key
from godwit.manager import MessageQueueManager
from godwit.runtime.producer.drains import Drains
from godwit.runtime.producer.producer import QueueProducer
from godwit.testing import in_memory
from tests.admin.builders import LEASE, Q, SlowTime, bury_ids, letters_of, messages
from tests.steal_time import calm
from tests.waiting import eventually, real_time

TWO_SECONDS = timedelta(seconds=2)
MAIL = GroupName("mail")


async def test_a_hold_says_who_since_when_and_why(memory: MemoryBroker, clock: ManualClock) -> None:
    control = QueueControl(memory, by="ada", clock=clock)
    assert await control.pause(Q, reason="the bank is down")
    clock.advance(timedelta(minutes=1))
    assert not await control.pause(Q, reason="again")
    found = await control.holds()
    hold = Hold(by="ada", since=from_ms(clock.now_ms() - 60_000), reason="the bank is down")
    assert found.paused(Q) == found.paused(Q, DEFAULT_GROUP) == hold
    assert found.draining(Q) is None


async def test_states_are_active_paused_draining_or_both(memory: MemoryBroker) -> None:
    await memory.declare(QueueSpec(name=Q), [GroupSpec(name=MAIL)])
    control = QueueControl(memory)

    async def states() -> list[str]:
        found = await control.holds()
        return [found.state(Q, DEFAULT_GROUP), found.state(Q, MAIL)]

    assert await states() == ["active", "active"]
    await control.pause(Q, MAIL)
    assert await states() == ["active", "paused"]
    await control.drain(Q)
    assert await states() == ["draining", "paused, draining"]
    await control.pause(Q)
    assert await control.resume(Q)
    assert await states() == ["active", "paused"]
    assert await control.resume(Q, MAIL)
    assert await states() == ["active", "active"]
    assert not await control.resume(Q)


async def test_a_mistyped_name_is_an_error(broker: Broker) -> None:
    control = QueueControl(broker)
    for call in (control.pause, control.drain, control.resume, control.purge, control.left):
        with pytest.raises(QueueNotFound):
            await call("ordres")
    for group_call in (control.pause, control.resume, control.purge):
        with pytest.raises(GroupNotFound):
            await group_call(Q, "nobody")
    assert (await control.holds()).found == {}


async def test_the_hold_of_a_removed_queue_can_be_lifted(memory: MemoryBroker) -> None:
    control = QueueControl(memory)
    await control.pause(Q)
    await memory.remove(Q)
    assert await control.resume(Q)


async def test_a_value_set_by_hand_holds_as_well(memory: MemoryBroker) -> None:
    await memory.shared.put(pause_key(Q), b"1", expected=None)
    assert (await holds(memory.shared)).state(Q, DEFAULT_GROUP) == "paused"


async def test_purging_leaves_what_is_leased_or_dead(broker: Broker) -> None:
    await bury_ids(broker, "dead")
    await broker.publish(seal_all(messages("leased", "a", "b")))
    assert await broker.pull(Q, DEFAULT_GROUP, worker="w", limit=1, lease=LEASE)
    control = QueueControl(broker)
    assert await control.purge(Q) == 2
    assert await control.left(Q) == 1
    assert len(await letters_of(broker)) == 1


async def test_waiting_until_a_queue_is_empty_ends_with_it_or_with_patience(memory: MemoryBroker) -> None:
    slow = SlowTime()
    await memory.publish(seal_all(messages("a", "b")))
    control = QueueControl(memory, timer=slow.clock, sleep=slow.sleep)
    assert await control.wait_until_empty(Q, patience=TWO_SECONDS) == 2
    assert 2 <= sum(slow.slept) <= 2.5

    async def work(_: float) -> None:
        await memory.purge(Q)

    assert await QueueControl(memory, sleep=work).wait_until_empty(Q, patience=TWO_SECONDS) == 0


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_running_workers_obey_a_pause_and_its_end_within_two_seconds(kind: str, tmp_path: Path) -> None:
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'godwit.db'}"
    mq = MessageQueueManager(connect(url))
    handled: list[float] = []

    @mq.consumer("orders", concurrency=2)
    async def note(message: Message) -> None:
        handled.append(calm())
        await asyncio.sleep(0.005)

    async with mq:
        await mq.enqueue_many(Message(queue=Q) for _ in range(5_000))
        worker = mq.worker()
        running = asyncio.create_task(worker.run())
        await eventually(lambda: len(handled) > 20, what="a running worker")
        paused_at = calm()
        await mq.control.pause(Q)
        await real_time(timedelta(seconds=2.5))
        assert handled[-1] - paused_at < 2
        assert worker.is_idle()
        before, used = len(handled), time.process_time()
        await real_time(timedelta(seconds=0.5))
        assert len(handled) == before < 5_000
        assert time.process_time() - used < 0.25  # what waits behind a pause keeps no worker busy
        resumed_at = calm()
        await mq.control.resume(Q)
        await eventually(lambda: len(handled) > before, what="a resumed worker")
        assert handled[before] - resumed_at < 2
        worker.stop()
        await running


async def test_a_drained_queue_takes_no_messages_until_it_is_resumed() -> None:
    mq = in_memory()
    other = QueueName("other")
    async with mq:
        for name in (Q, other):
            await mq.broker.declare(QueueSpec(name=name))
        await mq.control.drain(Q)
        with pytest.raises(QueueDraining, match="orders"):
            await mq.enqueue(Message(queue=Q))
        with pytest.raises(QueueDraining):
            await mq.enqueue_many([Message(queue=other), Message(queue=Q)])
        with pytest.raises(QueueDraining):
            await mq.schedule_message(Message(queue=Q), from_ms(mq.clock.now_ms() + 1_000))
        await mq.enqueue(Message(queue=other))
        assert mq.producer.stats().failed == 4
        assert {queue.name: queue.published for queue in await mq.broker.stats()} == {Q: 0, other: 1}
        await mq.control.resume(Q)
        await eventually(lambda: _accepted(mq), what="a resumed queue", within=TWO_SECONDS)


async def _accepted(mq: MessageQueueManager) -> bool:
    try:
        await mq.enqueue(Message(queue=Q))
    except QueueDraining:
        return False
    return True


async def test_a_producer_asks_at_most_once_a_second_however_many_publish(memory: MemoryBroker) -> None:
    now, asked = 0.0, 0

    class Asked:
        async def scan(self, prefix: str) -> dict[str, SharedEntry]:
            nonlocal asked
            asked += 1
            await asyncio.sleep(0)
            return {drain_key(Q): SharedEntry(b"", 1)} if asked == 2 else {}

    drains = Drains(Asked(), now=lambda: now)  # type: ignore[arg-type]
    await asyncio.gather(*(drains.refresh() for _ in range(100)))
    assert asked == 1
    drains.check([Q])
    now = 0.99
    assert drains.is_known
    now = 1.0
    assert not drains.is_known
    await drains.refresh()
    with pytest.raises(QueueDraining):
        drains.check([QueueName("other"), Q])
    drains.check([QueueName("other")])


async def test_a_broker_that_does_not_answer_drains_nothing() -> None:
    class Gone:
        async def scan(self, prefix: str) -> dict[str, SharedEntry]:
            raise BrokerUnavailable("memory://", "gone", "Wait.")

    drains = Drains(Gone())  # type: ignore[arg-type]
    await drains.refresh()
    assert drains.is_known
    drains.check([Q])


async def test_a_producer_in_use_notices_a_drain_within_a_second(broker: Broker) -> None:
    async with QueueProducer(broker) as producer:
        await producer.enqueue(Message(queue=Q))
        await QueueControl(broker).drain(Q)
        began = calm()
        await eventually(lambda: _refused(producer), what="a producer that noticed", within=TWO_SECONDS)
        assert calm() - began < 1.5


async def _refused(producer: QueueProducer) -> bool:
    try:
        await producer.enqueue(Message(queue=Q))
    except QueueDraining:
        return True
    return False


async def asked(memory: MemoryBroker, *events: Event) -> list[tuple[str, str | None, str | None]]:
    """Return event, group and actor of the rows that have an actor or could have one."""
    rows = [row for chunk in await memory.journal.read(f"{Q}#0") for row in rows_of(decode_chunk(chunk), f"{Q}#0")]
    return [(row["event"], row["group"], row["actor"]) for row in rows if row["event"] in events]


async def test_what_holds_a_queue_back_is_journaled_with_who_did_it_and_only_when_it_changed(
    memory: MemoryBroker,
) -> None:
    control = QueueControl(memory, by="ada")
    await control.pause(Q, DEFAULT_GROUP, reason="the bank is down")
    await control.pause(Q, DEFAULT_GROUP)
    await control.drain(Q)
    await control.resume(Q)
    await control.resume(Q)
    await QueueControl(memory, by="bob").resume(Q, DEFAULT_GROUP)
    await control.purge(Q)
    assert await asked(memory, *HOLDS) == [
        ("paused", DEFAULT_GROUP, "ada"), ("draining", None, "ada"), ("resumed", None, "ada"),
        ("resumed", DEFAULT_GROUP, "bob"),
    ]  # fmt: skip
    rows = [row for chunk in await memory.journal.read(f"{Q}#0") for row in rows_of(decode_chunk(chunk), f"{Q}#0")]
    (hold,) = [row["body"] for row in rows if row["event"] == Event.PAUSED]
    assert read_hold(hold).reason == "the bank is down"


async def test_a_purge_names_who_did_it(memory: MemoryBroker) -> None:
    await memory.publish(seal_all(messages("a", "b")))
    await QueueControl(memory, by="ada").purge(Q)
    assert await asked(memory, Event.PURGED) == [("purged", DEFAULT_GROUP, "ada")]


async def test_what_outlived_its_queue_is_let_go_without_a_row(memory: MemoryBroker) -> None:
    control = QueueControl(memory, by="ada")
    await control.pause(Q)
    await memory.remove(Q)
    assert await control.resume(Q)
    assert (await control.holds()).paused(Q) is None
