"""MessageQueueManager: the one object an application holds."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from godwit import Message, MessageQueueManager, QueueConsumer, config
from godwit.brokers.memory import MemoryBroker
from godwit.core.errors import (
    BrokerClosed,
    BrokerUnavailable,
    InvalidAckId,
    InvalidMessage,
    InvalidSetting,
    MessageNotHeld,
    QueueNotFound,
    UnknownScheme,
)
from godwit.core.failures.failure import FailureKind
from godwit.core.failures.judgement import Retry
from godwit.core.failures.retry import RetryPolicy
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.names import DEFAULT_GROUP, AckId, MessageId, QueueName
from godwit.core.queues import QueueSpec
from godwit.core.settings import QueueConfiguration, Settings
from godwit.testing import InMemoryManager, assert_nothing_published, assert_published, in_memory, run_until_empty
from tests.hostile import OddError
from tests.logs import capture_logs
from tests.project.specification import ROOT

ORDER = Message(queue="orders", type="order.created", payload={"id": 7})


def orders() -> InMemoryManager:
    """Return a manager with a consumer of `orders` in the group `billing` that is never run."""
    mq = in_memory()

    @mq.consumer("orders", group="billing")
    async def charge(message: Message) -> None: ...

    return mq


async def test_what_is_enqueued_is_dequeued_and_acknowledged() -> None:
    async with orders() as mq:
        assert await mq.enqueue(ORDER) == ORDER.id
        (delivery,) = await mq.dequeue("orders", "billing", limit=10)
        assert delivery.open().payload == {"id": 7}
        await mq.acknowledge_message(delivery)
        assert await mq.dequeue("orders", "billing") == []
        with pytest.raises(InvalidAckId):
            await mq.acknowledge_message(delivery)


async def test_a_held_message_is_settled_by_its_id_and_group_once() -> None:
    async with orders() as mq:
        await mq.enqueue(ORDER)
        await mq.dequeue("orders", "billing")
        await mq.acknowledge_message(ORDER.id, "billing")
        with pytest.raises(MessageNotHeld):
            await mq.acknowledge_message(ORDER.id, "billing")
        with pytest.raises(MessageNotHeld):
            await mq.reject_message("never seen", "why not")


async def test_rejecting_follows_the_retry_policy_or_gives_up() -> None:
    async with orders() as mq:
        await mq.enqueue_many([ORDER, Message(queue="orders", payload=2)])
        first, second = await mq.dequeue("orders", "billing")
        await mq.reject_message(first, reason="busy")
        await mq.reject_message(second, reason="nonsense", requeue=False)
        (group,) = (await mq.broker.stats())[0].groups
        assert (group.delayed, group.dead) == (1, 1)
        (letter,) = await mq.broker.dead_letters.page("orders")
        assert letter.kind is FailureKind.PERMANENT
        assert "nonsense" in letter.errors[0].message


async def test_a_messages_own_retry_policy_counts_before_that_of_its_consumer_and_queue() -> None:
    mq = in_memory()
    tries: Counter[str] = Counter()

    @mq.consumer("orders", retry_policy=RetryPolicy(max_attempts=2, initial_delay=timedelta(0)))
    async def charge(message: Message) -> None:
        tries[message.id] += 1
        raise ConnectionError

    async with mq:
        own = RetryPolicy(max_attempts=5, initial_delay=timedelta(0))
        await mq.enqueue_many(
            [Message(id="own", queue="orders", retry_policy=own), Message(id="plain", queue="orders")]
        )
        await run_until_empty(mq)
    assert tries == {"own": 5, "plain": 2}


async def test_rejecting_by_hand_follows_a_messages_own_retry_policy() -> None:
    async with orders() as mq:
        own = RetryPolicy(max_attempts=1)
        await mq.enqueue(Message(id="own", queue="orders", retry_policy=own))
        (delivery,) = await mq.dequeue("orders", "billing")
        await mq.reject_message(delivery, reason="busy")
        (letter,) = await mq.broker.dead_letters.page("orders")
        assert (letter.envelope.id, letter.kind) == ("own", FailureKind.TRANSIENT)


async def test_a_scheduled_message_comes_at_its_time_and_not_before() -> None:
    mq = in_memory()
    at: list[int] = []

    @mq.consumer("orders")
    async def charge(_: Message) -> None:
        at.append(mq.clock.now_ms())

    async with mq:
        due = datetime.fromtimestamp(mq.clock.now_ms() / 1000, UTC) + timedelta(hours=2)
        await mq.schedule_message(ORDER, due)
        await run_until_empty(mq)
    assert at == [round(due.timestamp() * 1000)]


async def test_a_waiting_message_can_be_discarded() -> None:
    async with orders() as mq:
        await mq.enqueue(ORDER)
        assert await mq.discard("orders", ORDER.id)
        assert not await mq.discard("orders", ORDER.id)


async def test_an_unknown_queue_is_refused_by_name() -> None:
    async with orders() as mq:
        with pytest.raises(QueueNotFound, match="'orders'"):
            await mq.enqueue(Message(queue="ordres"))


async def test_one_bad_message_refuses_the_whole_call() -> None:
    async with orders() as mq:
        with pytest.raises(InvalidMessage, match="Message 1 of the batch"):
            await mq.enqueue_many([ORDER, Message(queue="orders", payload={1, 2})])
        assert_nothing_published(mq)


async def test_after_closing_nothing_is_taken_any_more() -> None:
    mq = orders()
    with pytest.raises(BrokerClosed):
        await mq.enqueue(ORDER)
    async with mq:
        await mq.enqueue(ORDER)
    with pytest.raises(BrokerClosed):
        await mq.enqueue(ORDER)


async def test_the_class_form_of_a_consumer_works_like_the_decorator() -> None:
    seen: list[object] = []

    class Mailer(QueueConsumer):
        queues = ("mails",)
        group = "mailer"
        retry_policy = RetryPolicy(max_attempts=2, initial_delay=timedelta(seconds=1))

        async def process_message(self, message: Message) -> None:
            seen.append(message.payload)
            if len(seen) == 1:
                raise Retry

    mq = in_memory()
    mq.register(Mailer())
    async with mq:
        await mq.enqueue(Message(queue="mails", payload="hello"))
        ran = await run_until_empty(mq)
    assert seen == ["hello", "hello"]
    assert ran.took == timedelta(seconds=1)
    assert_published(mq, "mails", count=1, payload="hello")


@pytest.mark.parametrize(
    ("attempts", "first", "longest", "delays"),
    [
        (5, 1_000, 30_000, [1, 2, 4, 8]),  # the notifications' high queue
        (3, 5_000, 300_000, [5, 10]),  # the notifications' normal queue
        (6, 2_000, 60_000, [2, 4, 8, 16, 32]),  # birthdays
    ],
)
async def test_the_retry_schedules_of_the_specifications_are_kept_to_the_second(
    attempts: int, first: int, longest: int, delays: list[int]
) -> None:
    mq = in_memory()
    at: list[int] = []
    policy = RetryPolicy(
        max_attempts=attempts, initial_delay=timedelta(milliseconds=first), max_delay=timedelta(milliseconds=longest)
    )

    @mq.consumer("q", retry_policy=policy)
    async def handler(_: Message) -> None:
        at.append(mq.clock.now_ms())
        raise ValueError("no")

    async with mq:
        await mq.enqueue(Message(queue="q"))
        ran = await run_until_empty(mq)
    assert [(later - earlier) // 1000 for earlier, later in pairwise(at)] == delays
    assert ran.dead == 1


def test_synchronous_callers_use_one_bridge(tmp_path: Path) -> None:
    mq = MessageQueueManager.from_url(f"sqlite:///{tmp_path}/sync.db")

    @mq.consumer("orders")
    def charge(_: Message) -> None: ...

    try:
        assert mq.sync.enqueue(ORDER) == ORDER.id
        (delivery,) = mq.sync.dequeue("orders", DEFAULT_GROUP)
        mq.sync.acknowledge_message(delivery)
        assert mq.sync.dequeue("orders") == []
        with pytest.raises(AttributeError, match="not an asynchronous method"):
            mq.sync.worker()  # type: ignore[attr-defined]
        assert "godwit sync" in {thread.name for thread in threading.enumerate()}
    finally:
        mq.sync.close()
    with pytest.raises(BrokerClosed):
        mq.sync.enqueue(ORDER)


def test_many_threads_share_the_bridge(tmp_path: Path) -> None:
    mq = MessageQueueManager.from_url(f"sqlite:///{tmp_path}/sync.db")

    @mq.consumer("orders")
    def charge(_: Message) -> None: ...

    ids: list[str] = []

    def publish() -> None:
        ids.extend([mq.sync.enqueue(Message(queue="orders")) for _ in range(25)])

    threads = [threading.Thread(target=publish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        assert len(set(ids)) == 200
        assert sum(len(mq.sync.dequeue("orders", limit=50)) for _ in range(4)) == 200
    finally:
        mq.sync.close()


async def test_a_configuration_file_declares_queues_groups_and_routes() -> None:
    mq = MessageQueueManager.from_config(ROOT / "examples" / "notifications.toml", environment={}, url="memory://")
    async with mq:
        names = {queue.name for queue in await mq.broker.stats()}
        assert {"notifications:high", "notifications:normal", "notifications:bulk"} <= names
        assert "notifications:dlq" not in names  # only a name: declared, it would be fed
        await mq.enqueue(Message(type="urgent"))
        assert len(await mq.dequeue("notifications:high", "email-processors")) == 1


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(UnknownScheme, match="kafka"):
        MessageQueueManager.from_url("kafka://here")


async def test_the_journal_names_the_application_its_version_and_the_attributes_of_its_queue() -> None:
    spec = QueueSpec(name=QueueName("orders"), journal_attributes=("tenant",))
    queue = QueueConfiguration(spec=spec, retry_policy=RetryPolicy(), groups=(Settings().group(DEFAULT_GROUP),))
    settings = Settings(app_version="2.1", queues=(queue,))
    async with MessageQueueManager(MemoryBroker(), settings=settings, source="shop") as mq:
        await mq.enqueue(Message(id=MessageId("a"), queue="orders", attributes={"tenant": "acme"}))
        await mq.enqueue(Message(id=MessageId("b"), queue="orders"))
        await mq.dequeue("orders", limit=1)
        assert await mq.discard("orders", MessageId("b"))
        await mq.control.pause("orders")
        chunks = [decode_chunk(chunk) for chunk in await mq.broker.journal.read("orders#0")]
    rows = [row for chunk in chunks for row in rows_of(chunk, "orders#0")]
    told = [(row["event"], row["app_version"], row["actor"], row.get("attributes")) for row in rows[2:]]
    assert told == [
        ("enqueued", "2.1", None, '{"tenant":"acme"}'), ("enqueued", "2.1", None, None),
        ("delivered", "2.1", None, None), ("cancelled", None, "shop", None), ("paused", None, "shop", None),
    ]  # fmt: skip


@pytest.mark.parametrize("version", ["", "v" * 101, "2\n1", "\udc80"])
def test_a_version_that_no_journal_can_keep_is_refused(version: str) -> None:
    with pytest.raises(InvalidSetting, match="app_version"):
        MessageQueueManager(MemoryBroker(), settings=Settings(app_version=version))


@pytest.mark.parametrize(("variable", "said"), [("RABBITMQ_URL", True), ("GODWIT_URL", False)])
async def test_a_broker_that_a_variable_of_the_environment_names_is_logged(variable: str, said: bool) -> None:
    environment = {variable: "amqp://guest:secret@127.0.0.1:1/"}
    mq = MessageQueueManager.from_settings(config.load(environment=environment))
    with capture_logs() as lines, pytest.raises(BrokerUnavailable):
        await mq.__aenter__()
    news = [line for line in lines if line["event"] == "a variable of the environment names the broker"]
    assert [(line["variable"], line["broker"]) for line in news] == (
        [(variable, "amqp://guest:***@127.0.0.1:1/")] if said else []
    )
    await mq.close()


async def test_an_acknowledgement_that_did_not_get_through_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with orders() as mq:
        message_id = await mq.enqueue(ORDER)
        await mq.dequeue("orders", "billing")

        async def cancelled(_: object) -> list[AckId]:
            raise asyncio.CancelledError

        with monkeypatch.context() as away:
            away.setattr(mq.broker, "settle", cancelled)
            with pytest.raises(asyncio.CancelledError):
                await mq.acknowledge_message(message_id)
        await mq.acknowledge_message(message_id)
        with pytest.raises(MessageNotHeld):
            await mq.acknowledge_message(message_id)


async def test_closing_goes_on_when_one_of_its_steps_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    mq = orders()
    await mq.__aenter__()

    async def fails() -> None:
        raise OddError("no end")

    monkeypatch.setattr(mq.monitoring, "close", fails)
    with pytest.raises(OddError):
        await mq.close()
    with pytest.raises(BrokerClosed):
        await mq.broker.stats()
