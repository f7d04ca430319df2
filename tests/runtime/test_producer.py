"""What a producer does to a message before it is published, and what it refuses."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import ManualClock, from_ms
from godwit.core.errors import (
    BrokerClosed,
    GroupNotFound,
    InvalidMessage,
    QueueNotFound,
    SchedulerRequired,
    TransformFailed,
    Unroutable,
)
from godwit.core.failures.retry import RetryPolicy
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.message import Kind, Message, MessageMetadata, Routing, Scheduling
from godwit.core.messages.routing import Router
from godwit.core.messages.schemas import Schemas
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.core.settings import GroupConfiguration, QueueConfiguration, RoutingRule
from godwit.runtime.producer.producer import QueueProducer
from godwit.runtime.producer.stats import TOGETHER, producers
from godwit.telemetry.metrics import QueueMetricsCollector

ORDERS, MAILS = QueueName("orders"), QueueName("mails")
EMAIL, SMS = GroupName("email"), GroupName("sms")
LEASE = timedelta(seconds=30)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(clock: ManualClock) -> AsyncIterator[MemoryBroker]:
    async with MemoryBroker(clock=clock) as made:
        await made.declare(QueueSpec(name=ORDERS))
        await made.declare(QueueSpec(name=MAILS), [GroupSpec(name=EMAIL), GroupSpec(name=SMS)])
        yield made


async def received(broker: MemoryBroker, queue: QueueName = ORDERS, group: str = "default") -> list[Message]:
    deliveries = await broker.pull(queue, GroupName(group), worker="w", limit=100, lease=LEASE)
    return [delivery.open() for delivery in deliveries]


async def test_a_message_is_published_and_its_id_returned(broker: MemoryBroker) -> None:
    message = Message(queue=ORDERS, type="order.created", payload={"id": 7})
    assert await QueueProducer(broker).enqueue(message) == message.id
    (got,) = await received(broker)
    assert (got.id, got.type, got.payload) == (message.id, "order.created", {"id": 7})


async def test_a_message_without_metadata_gets_the_producers_name_and_its_own_id_as_correlation_id(
    broker: MemoryBroker,
) -> None:
    message_id = await QueueProducer(broker, source="shop").enqueue(Message(queue=ORDERS))
    (got,) = await received(broker)
    assert (got.metadata.source, got.metadata.correlation_id) == ("shop", message_id)
    assert (got.metadata.version, got.metadata.content_type, got.metadata.headers) == ("1.0", "application/json", {})
    assert (got.retry_policy, got.created_at.tzinfo) == (None, UTC)


async def test_metadata_the_message_has_stays(broker: MemoryBroker) -> None:
    metadata = MessageMetadata(source="orchestrator", correlation_id="n-1", headers={"traceparent": "own"})
    producer = QueueProducer(broker, source="shop", headers=lambda: {"traceparent": "ours", "tracestate": "s"})
    await producer.enqueue(Message(queue=ORDERS, metadata=metadata))
    (got,) = await received(broker)
    assert (got.metadata.source, got.metadata.correlation_id) == ("orchestrator", "n-1")
    assert got.metadata.headers == {"traceparent": "own", "tracestate": "s"}


KINDS = [  # (kind, with a delivery time, kind published, priority, delayed) or the error
    (Kind.IMMEDIATE, False, (Kind.IMMEDIATE, 100, False)),
    (Kind.IMMEDIATE, True, InvalidMessage),
    (Kind.STANDARD, False, (Kind.STANDARD, 50, False)),
    (Kind.STANDARD, True, (Kind.SCHEDULED, 50, True)),
    (Kind.BULK, False, (Kind.BULK, 10, False)),
    (Kind.BULK, True, (Kind.BULK, 10, True)),
    (Kind.SCHEDULED, False, InvalidMessage),
    (Kind.SCHEDULED, True, (Kind.SCHEDULED, 50, True)),
    (Kind.RECURRING, False, SchedulerRequired),
    (Kind.RECURRING, True, SchedulerRequired),
]


@pytest.mark.parametrize(("kind", "due", "expected"), KINDS)
async def test_what_each_kind_changes(
    broker: MemoryBroker, clock: ManualClock, kind: Kind, due: bool, expected: Any
) -> None:
    scheduling = Scheduling(deliver_at=from_ms(clock.now_ms()) + timedelta(minutes=1)) if due else None
    message = Message(queue=ORDERS, kind=kind, scheduling=scheduling)
    if isinstance(expected, type):
        with pytest.raises(expected):
            await QueueProducer(broker).enqueue(message)
        return
    await QueueProducer(broker).enqueue(message)
    published_as, priority, delayed = expected
    if delayed:
        assert await received(broker) == []
        clock.advance(timedelta(minutes=1))
    (got,) = await received(broker)
    assert (got.kind, got.effective_priority) == (published_as, priority)


@pytest.mark.parametrize("kind", [Kind.IMMEDIATE, Kind.STANDARD, Kind.BULK])
async def test_a_priority_the_message_has_goes_before_that_of_its_kind(broker: MemoryBroker, kind: Kind) -> None:
    await QueueProducer(broker).enqueue(Message(queue=ORDERS, kind=kind, priority=33))
    (delivery,) = await broker.pull(ORDERS, GroupName("default"), worker="w", limit=1, lease=LEASE)
    assert delivery.envelope.priority == 33


async def test_immediate_messages_are_delivered_before_standard_and_bulk_ones(broker: MemoryBroker) -> None:
    kinds = [Kind.BULK, Kind.STANDARD, Kind.IMMEDIATE]
    await QueueProducer(broker).enqueue_many([Message(queue=ORDERS, kind=kind) for kind in kinds])
    assert [got.kind for got in await received(broker)] == kinds[::-1]


async def test_a_cron_expression_makes_a_message_recurring_whatever_its_kind(broker: MemoryBroker) -> None:
    with pytest.raises(SchedulerRequired) as caught:
        await QueueProducer(broker).enqueue(Message(queue=ORDERS, scheduling=Scheduling(cron="* * * * *")))
    assert pickle.loads(pickle.dumps(caught.value)).message_id == caught.value.message_id


async def test_scheduled_at_and_expires_at_override_the_messages_own_times(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    now = from_ms(clock.now_ms())
    message = Message(
        queue=ORDERS,
        scheduling=Scheduling(deliver_at=now + timedelta(days=1), campaign="spring"),
        expires_at=now + timedelta(days=2),
    )
    due, end = now + timedelta(minutes=5), now + timedelta(minutes=9)
    await QueueProducer(broker).enqueue(message, scheduled_at=due, expires_at=end)
    assert await received(broker) == []
    clock.advance(timedelta(minutes=5))
    (got,) = await received(broker)
    assert got.scheduling == Scheduling(deliver_at=due, campaign="spring")
    assert (got.kind, got.expires_at) == (Kind.SCHEDULED, end)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"scheduled_at": datetime(2030, 1, 1)}, "scheduling.deliver_at"),
        ({"expires_at": datetime(2030, 1, 1)}, "expires_at"),
        (
            {"scheduled_at": datetime(2030, 1, 2, tzinfo=UTC), "expires_at": datetime(2030, 1, 1, tzinfo=UTC)},
            "expires_at",
        ),
        ({"scheduled_at": datetime(2030, 1, 2, tzinfo=UTC), "expires_at": datetime(2030, 1, 1)}, "expires_at"),
    ],
)
async def test_impossible_times_are_refused(broker: MemoryBroker, options: dict[str, datetime], field: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        await QueueProducer(broker).enqueue(Message(queue=ORDERS), **options)  # type: ignore[arg-type]
    assert caught.value.field == field


def routed(*, default_queue: QueueName | None = None) -> Router:
    rule = RoutingRule(condition='type.startsWith("mail.")', target=MAILS)
    queue = QueueConfiguration(
        spec=QueueSpec(name=MAILS),
        retry_policy=RetryPolicy(),
        groups=(GroupConfiguration(spec=GroupSpec(name=EMAIL)),),
        rules=(rule,),
    )
    return Router([queue], default_queue=default_queue)


async def test_rules_choose_the_queue_and_the_message_says_which(broker: MemoryBroker) -> None:
    await QueueProducer(broker, router=routed()).enqueue(Message(type="mail.welcome"))
    (got,) = await received(broker, MAILS, "email")
    assert got.queue == MAILS


async def test_a_target_queue_and_a_consumer_group_address_one_group(broker: MemoryBroker) -> None:
    routing = Routing(target_queue=MAILS, consumer_group=EMAIL)
    await QueueProducer(broker).enqueue(Message(queue=ORDERS, routing=routing))
    assert [got.queue for got in await received(broker, MAILS, "email")] == [MAILS]
    assert await received(broker, MAILS, "sms") == []
    assert await received(broker) == []


async def test_a_message_nobody_routes_is_refused_and_with_a_default_queue_it_goes_there(broker: MemoryBroker) -> None:
    with pytest.raises(Unroutable):
        await QueueProducer(broker, router=routed()).enqueue(Message(type="order"))
    await QueueProducer(broker, router=routed(default_queue=ORDERS)).enqueue(Message(type="order"))
    assert len(await received(broker)) == 1


async def test_unknown_queues_and_groups_are_refused(broker: MemoryBroker) -> None:
    with pytest.raises(QueueNotFound):
        await QueueProducer(broker).enqueue(Message(queue=QueueName("ordres")))
    with pytest.raises(GroupNotFound):
        await QueueProducer(broker).enqueue(Message(queue=MAILS, routing=Routing(consumer_group=GroupName("fax"))))


async def test_the_transform_of_a_queue_changes_its_messages_and_no_others(broker: MemoryBroker) -> None:
    producer = QueueProducer(
        broker, transforms={MAILS: lambda message: msgspec.structs.replace(message, payload={"seen": message.queue})}
    )
    await producer.enqueue_many([Message(queue=MAILS), Message(queue=ORDERS)])
    assert [got.payload for got in await received(broker, MAILS, "email")] == [{"seen": "mails"}]
    assert [got.payload for got in await received(broker)] == [None]


async def test_a_transform_that_returns_nothing_publishes_nothing(broker: MemoryBroker) -> None:
    transforms: Any = {ORDERS: lambda _: None}
    with pytest.raises(TransformFailed, match="returned NoneType"):
        await QueueProducer(broker, transforms=transforms).enqueue(Message(queue=ORDERS))
    assert await received(broker) == []


async def test_a_payload_that_does_not_fit_its_types_schema_is_refused(broker: MemoryBroker) -> None:
    schemas = Schemas()
    schemas.register("order", {"type": "object", "required": ["id"]})
    producer = QueueProducer(broker, schemas=schemas)
    with pytest.raises(InvalidMessage, match="id"):
        await producer.enqueue(Message(queue=ORDERS, type="order", payload={}))
    await producer.enqueue(Message(queue=ORDERS, type="order", payload={"id": 1}))
    assert len(await received(broker)) == 1


async def test_one_bad_message_refuses_the_whole_batch_and_is_named_by_its_place(broker: MemoryBroker) -> None:
    producer = QueueProducer(broker)
    with pytest.raises(InvalidMessage, match="Message 1 of the batch") as caught:
        await producer.enqueue_many([Message(queue=ORDERS), Message(queue=ORDERS, priority=101)])
    assert caught.value.index == 1
    with pytest.raises(QueueNotFound):
        await producer.enqueue_many([Message(queue=ORDERS), Message(queue=QueueName("ordres"))])
    with pytest.raises(Unroutable) as unroutable:
        await producer.enqueue_many([Message(queue=ORDERS), Message()])
    assert unroutable.value.__notes__ == ["It is message 1 of the batch; none of them was published."]
    assert await received(broker) == []


async def test_what_is_not_a_message_is_refused(broker: MemoryBroker) -> None:
    given: Any = {"type": "order"}
    with pytest.raises(InvalidMessage, match="is of type dict"):
        await QueueProducer(broker).enqueue(given)


async def test_a_batch_returns_ids_in_the_order_given_and_keeps_the_order_inside_a_queue(broker: MemoryBroker) -> None:
    messages = [Message(queue=queue, payload=index) for index, queue in enumerate([ORDERS, MAILS] * 300)]
    assert await QueueProducer(broker).enqueue_many(messages) == [message.id for message in messages]
    seen = []
    while got := await received(broker):
        seen += [message.payload for message in got]
    assert seen == list(range(0, 600, 2))
    assert await QueueProducer(broker).enqueue_many([]) == []


async def test_a_closed_producer_takes_no_more_messages(broker: MemoryBroker) -> None:
    async with QueueProducer(broker, source="shop") as producer:
        await producer.enqueue(Message(queue=ORDERS))
    with pytest.raises(BrokerClosed, match="Producer 'shop' is closed"):
        await producer.enqueue(Message(queue=ORDERS))
    with pytest.raises(BrokerClosed):
        await producer.enqueue_many([])


async def test_a_producer_says_what_it_did_and_how_fast(broker: MemoryBroker, clock: ManualClock) -> None:
    producer = QueueProducer(broker, source="shop", clock=clock)
    message = Message(queue=ORDERS)
    await producer.enqueue_many([message, *(Message(queue=MAILS) for _ in range(59))])
    await producer.enqueue(message)
    with pytest.raises(QueueNotFound):
        await producer.enqueue(Message(queue=QueueName("ordres")))
    clock.advance(timedelta(seconds=10))
    stats = producer.stats()
    assert (stats.name, stats.accepted, stats.duplicates, stats.failed) == ("shop", 60, 1, 1)
    assert stats.queues == {ORDERS: 1, MAILS: 59}
    assert stats.per_second == pytest.approx(6)
    clock.advance(timedelta(minutes=2))
    assert producer.stats().per_second == 0


async def test_messages_accepted_one_by_one_count_when_they_were(broker: MemoryBroker, clock: ManualClock) -> None:
    producer = QueueProducer(broker, source="shop", clock=clock)
    for _ in range(TOGETHER + 1):
        await producer.enqueue(Message(queue=ORDERS))
    clock.advance(timedelta(minutes=2))
    await producer.enqueue_many([Message(queue=MAILS) for _ in range(3)])
    stats = producer.stats()
    assert (stats.accepted, stats.queues) == (TOGETHER + 4, {ORDERS: TOGETHER + 1, MAILS: 3})
    assert stats.per_second == pytest.approx(3 / 60, rel=0.1)


async def test_other_processes_see_a_producer_until_it_closes_or_falls_silent(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    first, second = (QueueProducer(broker, source="shop", clock=clock) for _ in range(2))
    assert await producers(broker.shared) == []
    for producer in (first, second, first):
        await producer.tick()
    await first.enqueue(Message(queue=ORDERS))
    await first.tick()
    assert sorted(stats.accepted for stats in await producers(broker.shared)) == [0, 1]
    await first.close()
    assert [stats.instance for stats in await producers(broker.shared)] == [second.stats().instance]
    clock.advance(timedelta(seconds=31))
    assert await producers(broker.shared) == []
    await second.tick()
    assert len(await producers(broker.shared)) == 1


async def test_publishing_and_its_errors_are_measured(broker: MemoryBroker) -> None:
    calls: list[tuple[Any, ...]] = []

    class Metrics:
        def enqueued(self, queue: str, type: str, count: int = 1) -> None:
            calls.append(("enqueued", queue, type, count))

        def produced(self, producer: str, count: int) -> None:
            calls.append(("produced", producer, count))

        def published(self, queue: str, seconds: float) -> None:
            assert seconds > 0
            calls.append(("published", queue))

        def published_one(self, queue: str, type: str, producer: str, seconds: float) -> None:
            self.enqueued(queue, type)
            self.produced(producer, 1)
            self.published(queue, seconds)

        def publish_failed(self, queue: str, error: BaseException | str, count: int = 1) -> None:
            calls.append(("failed", queue, type(error).__name__, count))

    producer = QueueProducer(broker, source="shop", metrics=Metrics())
    await producer.enqueue_many([Message(queue=ORDERS, type="a"), Message(queue=ORDERS, type="a")])
    with pytest.raises(QueueNotFound):
        await producer.enqueue(Message(queue=QueueName("ordres")))
    with pytest.raises(Unroutable):
        await producer.enqueue(Message())
    assert calls == [
        ("enqueued", "orders", "a", 2),
        ("produced", "shop", 2),
        ("published", "orders"),
        ("failed", "ordres", "QueueNotFound", 1),
        ("failed", "unrouted", "Unroutable", 1),
    ]


async def test_the_collector_of_the_process_takes_a_producers_reports(broker: MemoryBroker) -> None:
    metrics = QueueMetricsCollector()
    await QueueProducer(broker, source="shop", metrics=metrics).enqueue(Message(queue=ORDERS))
    assert metrics.producer_rates()["shop"] > 0


async def test_publishing_the_same_message_again_is_accepted_once(broker: MemoryBroker) -> None:
    message = Message(queue=ORDERS, id=MessageId("order-7"))
    producer = QueueProducer(broker)
    assert [await producer.enqueue(message) for _ in range(2)] == ["order-7", "order-7"]
    assert len(await received(broker)) == 1


async def test_messages_of_a_call_are_prepared_as_each_would_be_alone(broker: MemoryBroker) -> None:
    producer = QueueProducer(broker, source='a "shop"')
    plain = [Message(queue=ORDERS, payload={"n": n}) for n in range(3)]
    odd = [
        Message(queue=ORDERS, priority=0),
        Message(queue=ORDERS, kind=Kind.BULK),
        Message(queue=ORDERS, ordering_key="k"),
        Message(queue=ORDERS, attributes={"a": "b"}),
        Message(queue=ORDERS, id=MessageId('"quoted"')),
        Message(queue=ORDERS, type="other"),
        Message(queue=MAILS),
        Message(queue=ORDERS, expires_at=datetime.now(UTC) + timedelta(days=1)),
    ]
    messages = [plain[0], *(message for one in odd for message in (one, *plain))]
    assert producer._prepared(messages) == [producer.prepare(message) for message in messages]
    with pytest.raises(InvalidMessage, match="Message 2"):
        producer._prepared([*plain[:2], Message(queue=ORDERS, payload={"n": object()})])


async def arrivals(broker: MemoryBroker) -> list[tuple[str, str | None, str | None]]:
    """Return id, correlation id and attributes of what came in."""
    chunks = [decode_chunk(chunk) for chunk in await broker.journal.read("orders#0")]
    rows = [row for chunk in chunks if chunk.event is Event.ENQUEUED for row in rows_of(chunk, "orders#0")]
    return [(row["message_id"], row["correlation_id"], row["attributes"]) for row in rows]


async def test_a_correlation_id_of_ones_own_and_the_attributes_a_queue_names_are_journaled(
    broker: MemoryBroker,
) -> None:
    spec = QueueSpec(name=ORDERS, journal_attributes=("tenant", "region"))
    configured = QueueConfiguration(spec=spec, retry_policy=RetryPolicy(), groups=())
    producer = QueueProducer(broker, router=Router([configured]))
    linked = MessageMetadata(correlation_id="case-9")
    many = [
        Message(id=MessageId("a"), queue=ORDERS),
        Message(id=MessageId("b"), queue=ORDERS, attributes={"tenant": "acme", "colour": "red"}),
        Message(id=MessageId("c"), queue=ORDERS, metadata=linked, attributes={"tenant": "x" * 1_000}),
        Message(id=MessageId("d"), queue=ORDERS, metadata=MessageMetadata(correlation_id="d")),
        Message(id=MessageId("e"), queue=ORDERS, metadata=MessageMetadata(correlation_id="y" * 1_000)),
    ]
    await producer.enqueue_many(many)
    await producer.enqueue(Message(id=MessageId("f"), queue=ORDERS, attributes={"region": "eu", "tenant": "b"}))
    assert await arrivals(broker) == [
        ("a", None, None),
        ("b", None, '{"tenant":"acme"}'),
        ("c", "case-9", '{"tenant":"' + "x" * 256 + '"}'),
        ("d", None, None),
        ("e", "y" * 255, None),
        ("f", None, '{"tenant":"b","region":"eu"}'),
    ]


async def test_without_the_setting_no_attribute_is_journaled(broker: MemoryBroker) -> None:
    await QueueProducer(broker).enqueue(Message(queue=ORDERS, attributes={"tenant": "acme"}))
    assert [found[1:] for found in await arrivals(broker)] == [(None, None)]
