"""Concurrent callers share round trips, and each gets the outcome of its own message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from godwit.brokers.contract import PUBLISH_CHUNK, Ack, Receipt
from godwit.brokers.memory import MemoryBroker
from godwit.core.errors import BrokerClosed, BrokerUnavailable, PartialPublish, QueueFull, QueueNotFound
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import QueueSpec
from godwit.runtime.producer.batcher import FEW
from godwit.runtime.producer.producer import QueueProducer

ORDERS, SMALL = QueueName("orders"), QueueName("small")
DOWN = BrokerUnavailable("memory://", "it is down", "Wait.")


class GatedBroker(MemoryBroker):
    """A memory broker whose publishes wait for the test, and fail as told."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[Envelope]] = []
        self.gate = asyncio.Event()
        self.failures: list[Exception | None] = []

    async def publish(self, envelopes: Sequence[Envelope], *, min_replicas: int | None = None) -> list[Receipt]:
        self.calls.append(list(envelopes))
        await self.gate.wait()
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        return await super().publish(envelopes, min_replicas=min_replicas)

    @property
    def sizes(self) -> list[int]:
        return [len(call) for call in self.calls]

    async def depth(self, queue: QueueName) -> int:
        (stats,) = [stats for stats in await self.stats() if stats.name == queue]
        return stats.groups[0].depth


@pytest.fixture
async def broker() -> GatedBroker:
    made = GatedBroker()
    await made.declare(QueueSpec(name=ORDERS))
    await made.declare(QueueSpec(name=SMALL, max_size=2))
    return made


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def producer(broker: GatedBroker, slept: list[float]) -> QueueProducer:
    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    return QueueProducer(broker, source="test", sleep=sleep, random=Random(1))


def start(producer: QueueProducer, *queues: str) -> list[asyncio.Task[Any]]:
    return [
        asyncio.create_task(producer.enqueue(Message(queue=QueueName(queue), payload=index)))
        for index, queue in enumerate(queues)
    ]


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def outcomes(tasks: list[asyncio.Task[Any]]) -> list[str]:
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return [type(result).__name__ if isinstance(result, BaseException) else "ok" for result in results]


async def test_an_idle_producer_publishes_at_once(broker: GatedBroker, producer: QueueProducer) -> None:
    coroutine = producer.enqueue(Message(queue=ORDERS))
    coroutine.send(None)  # one step, without giving the event loop a turn
    assert broker.sizes == [1]
    coroutine.close()


async def test_calls_that_come_while_a_publish_is_under_way_go_together(
    broker: GatedBroker, producer: QueueProducer
) -> None:
    tasks = start(producer, *[ORDERS] * 50)
    await settle()
    assert broker.sizes == [1]
    broker.gate.set()
    assert await outcomes(tasks) == ["ok"] * 50
    assert broker.sizes == [1, 49]
    assert [envelope.open().payload for envelope in broker.calls[1]] == list(range(1, 50))


async def test_two_publishes_are_under_way_where_the_broker_works_beside_its_clients(broker: GatedBroker) -> None:
    broker.publishes_at_once = 2
    producer = QueueProducer(broker, source="test")
    tasks = start(producer, *[ORDERS] * 50)
    await settle()
    assert broker.sizes == [1, 25]
    broker.gate.set()
    assert await outcomes(tasks) == ["ok"] * 50
    assert sum(broker.sizes) == 50
    assert await broker.depth(ORDERS) == 50


async def test_few_messages_are_not_divided(broker: GatedBroker) -> None:
    broker.publishes_at_once = 2
    producer = QueueProducer(broker, source="test")
    tasks = start(producer, *[ORDERS] * (1 + FEW))
    await settle()
    assert broker.sizes == [1, FEW]
    broker.gate.set()
    assert await outcomes(tasks) == ["ok"] * (1 + FEW)


@pytest.mark.parametrize("keyed", [0, 7, 19])
async def test_nothing_is_under_way_beside_a_message_with_an_ordering_key(broker: GatedBroker, keyed: int) -> None:
    broker.publishes_at_once = 2
    producer = QueueProducer(broker, source="test")
    messages = [Message(queue=ORDERS, payload=index) for index in range(20)]
    messages[keyed] = Message(queue=ORDERS, payload=keyed, ordering_key="customer")
    tasks = [asyncio.create_task(producer.enqueue(message)) for message in messages]
    await settle()
    assert broker.sizes == [1]
    broker.gate.set()
    assert await outcomes(tasks) == ["ok"] * 20
    assert [envelope.open().payload for call in broker.calls for envelope in call] == list(range(20))
    broker.gate.clear()
    tasks = start(producer, *[ORDERS] * 40)
    await settle()
    assert broker.sizes[-2:] == [1, 20]  # no key is about any more
    broker.gate.set()
    assert await outcomes(tasks) == ["ok"] * 40


async def test_a_caller_that_goes_away_with_its_ordering_key_stops_nobody(broker: GatedBroker) -> None:
    broker.publishes_at_once = 2
    producer = QueueProducer(broker, source="test")
    first = start(producer, ORDERS)
    await settle()
    keyed = asyncio.create_task(producer.enqueue(Message(queue=ORDERS, ordering_key="customer")))
    await settle()
    keyed.cancel()
    broker.gate.set()
    assert await outcomes([*first, keyed]) == ["ok", "CancelledError"]
    broker.gate.clear()
    tasks = start(producer, *[ORDERS] * 40)
    await settle()
    assert broker.sizes[-2:] == [1, 20]
    broker.gate.set()
    assert await outcomes(tasks) == ["ok"] * 40


async def test_a_batch_is_at_most_a_chunk(broker: GatedBroker, producer: QueueProducer) -> None:
    tasks = start(producer, *[ORDERS] * (2 * PUBLISH_CHUNK + 11))
    await settle()
    broker.gate.set()
    assert set(await outcomes(tasks)) == {"ok"}
    assert broker.sizes == [1, PUBLISH_CHUNK, PUBLISH_CHUNK, 10]


async def test_after_a_burst_the_producer_is_idle_again(broker: GatedBroker, producer: QueueProducer) -> None:
    tasks = start(producer, ORDERS, ORDERS, ORDERS)
    await settle()
    broker.gate.set()
    await outcomes(tasks)
    await settle()
    broker.calls.clear()
    coroutine = producer.enqueue(Message(queue=ORDERS))
    with suppress(StopIteration):
        coroutine.send(None)
    assert broker.sizes == [1]


async def test_a_full_queue_fails_only_its_own_messages(broker: GatedBroker, producer: QueueProducer) -> None:
    tasks = start(producer, ORDERS, SMALL, ORDERS, SMALL, SMALL, ORDERS)
    await settle()
    broker.gate.set()
    assert await outcomes(tasks) == ["ok", "ok", "ok", "ok", "QueueFull", "ok"]
    assert (await broker.depth(ORDERS), await broker.depth(SMALL)) == (3, 2)
    assert producer.stats().failed == 1


async def test_an_unknown_queue_fails_only_its_own_message(broker: GatedBroker, producer: QueueProducer) -> None:
    tasks = start(producer, ORDERS, ORDERS, "ordres", SMALL)
    await settle()
    broker.gate.set()
    assert await outcomes(tasks) == ["ok", "ok", "QueueNotFound", "ok"]


async def test_errors_are_raised_as_objects_of_their_own(broker: GatedBroker, producer: QueueProducer) -> None:
    tasks = start(producer, ORDERS, "ordres", "ordres")
    await settle()
    broker.gate.set()
    _, first, second = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(first, QueueNotFound)
    assert isinstance(second, QueueNotFound)
    assert first is not second


async def test_what_was_accepted_of_a_partial_publish_succeeds_and_the_rest_goes_again_alone(
    broker: GatedBroker, producer: QueueProducer
) -> None:
    tasks = start(producer, ORDERS, ORDERS, ORDERS, ORDERS)
    await settle()
    accepted = PartialPublish(("x", "y"), "the disk is full")
    accepted.__cause__ = QueueFull(ORDERS, "default", "max_size", 2)
    broker.failures = [None, accepted]
    broker.gate.set()
    assert await outcomes(tasks) == ["ok"] * 4
    assert broker.sizes == [1, 3, 1]
    assert broker.calls[2] == [broker.calls[1][2]]


async def test_a_broker_that_fails_for_a_moment_is_asked_again_with_the_same_ids(
    broker: GatedBroker, producer: QueueProducer, slept: list[float]
) -> None:
    broker.failures = [DOWN, DOWN]
    broker.gate.set()
    await producer.enqueue(Message(queue=ORDERS))
    assert broker.sizes == [1, 1, 1]
    assert len({call[0].id for call in broker.calls}) == 1
    assert [round(seconds, 1) for seconds in slept] == [0.1, 0.2]
    assert await broker.depth(ORDERS) == 1


async def test_a_broker_that_stays_away_fails_every_caller_after_three_tries(
    broker: GatedBroker, producer: QueueProducer
) -> None:
    tasks = start(producer, ORDERS, ORDERS, ORDERS)
    await settle()
    broker.failures = [DOWN] * 6
    broker.gate.set()
    assert await outcomes(tasks) == ["BrokerUnavailable"] * 3
    assert broker.sizes == [1, 1, 1, 2, 2, 2]
    assert producer.stats().failed == 3


async def test_a_closed_broker_is_not_asked_again(broker: GatedBroker, producer: QueueProducer) -> None:
    broker.gate.set()
    await broker.close()
    with pytest.raises(BrokerClosed):
        await producer.enqueue(Message(queue=ORDERS))
    assert broker.sizes == [1]


async def test_a_batch_goes_on_after_what_was_accepted_when_the_broker_recovers(
    broker: GatedBroker, producer: QueueProducer
) -> None:
    partial = PartialPublish(("a", "b"), "it went away")
    partial.__cause__ = DOWN
    broker.failures = [partial]
    broker.gate.set()
    messages = [Message(queue=ORDERS) for _ in range(5)]
    assert await producer.enqueue_many(messages) == [message.id for message in messages]
    assert broker.sizes == [5, 3]


async def test_a_batch_that_stops_half_way_names_what_was_accepted(
    broker: GatedBroker, producer: QueueProducer
) -> None:
    broker.gate.set()
    messages = [Message(queue=queue) for queue in (ORDERS, SMALL, SMALL, SMALL)]
    with pytest.raises(PartialPublish) as caught:
        await producer.enqueue_many(messages)
    assert caught.value.accepted == (messages[0].id,)
    assert isinstance(caught.value.__cause__, QueueFull)
    stats = producer.stats()
    assert (stats.accepted, stats.failed) == (1, 3)


async def test_a_batch_of_which_nothing_was_accepted_raises_the_cause_itself(
    broker: GatedBroker, producer: QueueProducer
) -> None:
    broker.gate.set()
    with pytest.raises(QueueFull):
        await producer.enqueue_many([Message(queue=SMALL) for _ in range(3)])


async def test_a_caller_that_goes_away_takes_only_its_own_message_with_it(
    broker: GatedBroker, producer: QueueProducer
) -> None:
    tasks = start(producer, ORDERS, ORDERS, ORDERS)
    await settle()
    tasks[1].cancel()
    await settle()
    broker.gate.set()
    assert await outcomes(tasks) == ["ok", "CancelledError", "ok"]
    assert broker.sizes == [1, 1]


async def test_the_first_caller_going_away_does_not_stop_those_who_gathered(
    broker: GatedBroker, producer: QueueProducer
) -> None:
    tasks = start(producer, ORDERS, ORDERS, ORDERS)
    await settle()
    tasks[0].cancel()
    await settle()
    broker.gate.set()
    assert await outcomes(tasks) == ["CancelledError", "ok", "ok"]
    assert broker.sizes == [1, 2]


async def test_a_caller_going_away_during_the_shared_publish_does_not_cancel_it(
    broker: GatedBroker, producer: QueueProducer
) -> None:
    tasks = start(producer, ORDERS, ORDERS, ORDERS)
    await settle()
    tasks[0].cancel()
    await settle()
    assert broker.sizes == [1, 2]
    tasks[1].cancel()
    await settle()
    closing = asyncio.create_task(producer.close())
    broker.gate.set()
    assert await outcomes(tasks) == ["CancelledError", "CancelledError", "ok"]
    await closing
    assert await broker.depth(ORDERS) == 2


async def test_closing_refuses_new_messages_and_waits_for_those_under_way(
    broker: GatedBroker, producer: QueueProducer
) -> None:
    tasks = start(producer, ORDERS, ORDERS, ORDERS)
    await settle()
    closing = asyncio.create_task(producer.close())
    await settle()
    with pytest.raises(BrokerClosed):
        await producer.enqueue(Message(queue=ORDERS))
    assert not closing.done()
    broker.gate.set()
    await closing
    assert await outcomes(tasks) == ["ok"] * 3
    assert await broker.depth(ORDERS) == 3


async def test_messages_of_a_key_keep_their_order_when_another_one_of_the_batch_is_refused() -> None:
    broker = SlowFirst()
    # The refused message comes before the others in the call, which go again one by one then.
    tasks_queue = QueueName("tasks")
    await broker.declare(QueueSpec(name=tasks_queue))
    await broker.declare(QueueSpec(name=SMALL, max_size=1))
    async with QueueProducer(broker, source="test") as producer:
        await producer.enqueue(Message(queue=SMALL))
        first = asyncio.create_task(producer.enqueue(Message(queue=tasks_queue, payload="first")))
        await settle()
        keyed = [Message(queue=tasks_queue, ordering_key="k", payload=number) for number in range(20)]
        tasks = [asyncio.create_task(producer.enqueue(one)) for one in (*keyed, Message(queue=SMALL))]
        broker.gate.set()
        assert await outcomes([first, *tasks]) == ["ok"] * 21 + ["QueueFull"]
    found = []
    while pulled := await broker.pull(
        tasks_queue, GroupName("default"), worker="w", limit=50, lease=timedelta(minutes=1)
    ):
        found += [one.open().payload for one in pulled]
        await broker.settle([Ack(one.ack_id) for one in pulled])
    assert [one for one in found if one != "first"] == list(range(20))


class SlowFirst(GatedBroker):
    """A broker that takes longer for the first messages of a run than for those after them."""

    async def publish(self, envelopes: Sequence[Envelope], *, min_replicas: int | None = None) -> list[Receipt]:
        """Publish a message alone after as many turns of the event loop as there are others behind it."""
        receipts = None
        if len(envelopes) > 1:
            receipts = await super().publish(envelopes, min_replicas=min_replicas)
        payload = envelopes[0].open().payload
        for _ in range(200 - 5 * payload if isinstance(payload, int) else 0):
            await asyncio.sleep(0)
        return receipts or await MemoryBroker.publish(self, envelopes, min_replicas=min_replicas)
