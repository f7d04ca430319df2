"""The specification's acceptance criteria, line by line; where it waits, the clock is moved instead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from godwit.core.clock import ManualClock
from godwit.messagequeue import InternalMessage, MessageQueue, SubscriptionOptions

pytestmark = pytest.mark.usefixtures("queue")


def given(id: str, data: bytes, ordering_key: str | None = None) -> InternalMessage:
    return InternalMessage(
        id=id,
        data=data,
        attributes={},
        publish_time=datetime.now(UTC),
        ordering_key=ordering_key,
        delivery_attempt=1,
    )


def test_ac_001_singleton_pattern() -> None:
    queue1 = MessageQueue.get_instance()
    queue2 = MessageQueue.get_instance()

    assert queue1 is queue2


def test_ac_002_register_and_check_topic() -> None:
    queue = MessageQueue.get_instance()

    assert queue.topic_exists("test-topic") is False

    queue.register_topic("test-topic")

    assert queue.topic_exists("test-topic") is True


def test_ac_003_publish_and_pull_messages() -> None:
    queue = MessageQueue.get_instance()

    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic")

    message_ids = queue.publish("test-topic", [given("msg-1", b"Hello")])
    assert len(message_ids) == 1

    pulled = queue.pull("test-sub", 10)
    assert len(pulled) == 1
    assert pulled[0].data.decode() == "Hello"


def test_ac_004_multiple_subscriptions_receive_copies() -> None:
    queue = MessageQueue.get_instance()

    queue.register_topic("test-topic")
    queue.register_subscription("sub-1", "test-topic")
    queue.register_subscription("sub-2", "test-topic")

    queue.publish("test-topic", [given("msg-1", b"test")])

    pulled1 = queue.pull("sub-1", 10)
    pulled2 = queue.pull("sub-2", 10)

    assert len(pulled1) == 1
    assert len(pulled2) == 1


def test_ac_005_ack_removes_message() -> None:
    queue = MessageQueue.get_instance()

    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic")

    queue.publish("test-topic", [given("msg-1", b"test")])

    pulled1 = queue.pull("test-sub", 10)
    assert len(pulled1) == 1

    queue.ack(pulled1[0].ack_id)

    pulled2 = queue.pull("test-sub", 10)
    assert len(pulled2) == 0


def test_ac_006_nack_redelivers_immediately() -> None:
    queue = MessageQueue.get_instance()

    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic")

    queue.publish("test-topic", [given("msg-1", b"test")])

    pulled1 = queue.pull("test-sub", 10)
    assert pulled1[0].delivery_attempt == 1

    queue.nack(pulled1[0].ack_id)

    pulled2 = queue.pull("test-sub", 10)
    assert len(pulled2) == 1
    assert pulled2[0].delivery_attempt == 2


def test_ac_007_ack_deadline_expiry_redelivers(clock: ManualClock) -> None:
    queue = MessageQueue.get_instance()

    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic", SubscriptionOptions(ack_deadline_seconds=10))

    queue.publish("test-topic", [given("msg-1", b"test")])

    pulled1 = queue.pull("test-sub", 10)
    assert len(pulled1) == 1

    clock.advance(timedelta(milliseconds=10_100))

    pulled2 = queue.pull("test-sub", 10)
    assert len(pulled2) == 1
    assert pulled2[0].delivery_attempt == 2


def test_ac_008_modify_ack_deadline(clock: ManualClock) -> None:
    queue = MessageQueue.get_instance()

    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic", SubscriptionOptions(ack_deadline_seconds=10))

    queue.publish("test-topic", [given("msg-1", b"test")])

    pulled1 = queue.pull("test-sub", 10)

    queue.modify_ack_deadline(pulled1[0].ack_id, 15)

    clock.advance(timedelta(milliseconds=12_000))

    pulled2 = queue.pull("test-sub", 10)
    assert len(pulled2) == 0

    queue.ack(pulled1[0].ack_id)


def test_ac_009_message_ordering() -> None:
    queue = MessageQueue.get_instance()

    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic", SubscriptionOptions(message_ordering=True))

    queue.publish("test-topic", [given("msg-1", b"first", "user-123"), given("msg-2", b"second", "user-123")])

    pulled1 = queue.pull("test-sub", 10)
    assert len(pulled1) == 1
    assert pulled1[0].data.decode() == "first"

    pulled2 = queue.pull("test-sub", 10)
    assert len(pulled2) == 0

    queue.ack(pulled1[0].ack_id)

    pulled3 = queue.pull("test-sub", 10)
    assert len(pulled3) == 1
    assert pulled3[0].data.decode() == "second"


def test_ac_010_publish_without_subscriptions() -> None:
    queue = MessageQueue.get_instance()

    queue.register_topic("test-topic")

    message_ids = queue.publish("test-topic", [given("msg-1", b"test")])
    assert len(message_ids) == 1


def test_ac_011_get_subscriptions_for_topic() -> None:
    queue = MessageQueue.get_instance()

    queue.register_topic("test-topic")
    queue.register_subscription("sub-1", "test-topic")
    queue.register_subscription("sub-2", "test-topic")

    subs = queue.get_subscriptions_for_topic("test-topic")
    assert len(subs) == 2


def test_ac_012_unregister_topic_detaches_subscriptions() -> None:
    queue = MessageQueue.get_instance()

    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic")

    queue.unregister_topic("test-topic")

    assert queue.topic_exists("test-topic") is False
    assert queue.subscription_exists("test-sub") is True

    sub = queue.get_subscription("test-sub")
    assert sub is not None
    assert sub.topic == "test-topic"


def test_ac_013_fifo_message_ordering_without_ordering_key() -> None:
    queue = MessageQueue.get_instance()

    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic")

    queue.publish("test-topic", [given("msg-1", b"A"), given("msg-2", b"B"), given("msg-3", b"C")])

    pulled = queue.pull("test-sub", 10)

    assert len(pulled) == 3
    assert pulled[0].data.decode() == "A"
    assert pulled[1].data.decode() == "B"
    assert pulled[2].data.decode() == "C"
