"""Topics and subscriptions: BR-001, 002, 011, 012, 021 and what registering twice means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import godwit
from godwit.core.clock import ManualClock, from_ms
from godwit.messagequeue import (
    AlreadyExistsError,
    BackoffPolicy,
    DeadLetterPolicy,
    InvalidAckId,
    InvalidArgumentError,
    MessageQueue,
    NotFoundError,
    SubscriptionMetadata,
    SubscriptionOptions,
    SubscriptionStats,
    TopicMetadata,
)
from tests.messagequeue.builders import SECOND, message, numbered, subscribe


def test_br_001_every_access_gives_the_same_instance(queue: MessageQueue) -> None:
    assert {id(MessageQueue.get_instance()) for _ in range(10)} == {id(queue)}


def test_br_001_there_is_no_instance_before_the_first_access() -> None:
    MessageQueue.reset_instance()
    assert MessageQueue._instance is None
    assert MessageQueue.get_instance() is MessageQueue._instance
    MessageQueue.reset_instance()


def test_a_reset_gives_a_fresh_instance_and_empties_the_former_one(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    MessageQueue.reset_instance()
    assert MessageQueue.get_instance() is not queue
    assert MessageQueue.get_instance().get_all_topics() == []
    assert queue.get_all_topics() == []
    assert queue.get_all_subscriptions() == []


def test_message_queue_is_not_part_of_the_public_names_of_godwit() -> None:
    assert "MessageQueue" not in godwit.__all__
    assert not hasattr(godwit, "MessageQueue")


def test_br_002_a_registered_topic_is_listed_with_its_metadata_and_starts_empty(
    queue: MessageQueue, clock: ManualClock
) -> None:
    queue.register_topic("orders")
    created = from_ms(clock.now_ms())
    assert queue.get_topic("orders") == TopicMetadata(name="orders", created=created)
    clock.advance(SECOND)
    queue.register_topic("users")
    assert queue.get_all_topics() == [
        TopicMetadata(name="orders", created=created),
        TopicMetadata(name="users", created=created + SECOND),
    ]
    queue.register_subscription("sub", "orders")
    assert queue.pull("sub", 10) == []


def test_an_unknown_topic_has_no_metadata(queue: MessageQueue) -> None:
    assert queue.get_topic("orders") is None
    assert queue.get_subscriptions_for_topic("orders") == []


def test_a_topic_can_bring_its_own_metadata(queue: MessageQueue) -> None:
    metadata = TopicMetadata(name="orders", created=datetime(2020, 1, 1, tzinfo=UTC))
    queue.register_topic("orders", metadata)
    assert queue.get_topic("orders") == metadata
    with pytest.raises(InvalidArgumentError, match=r"metadata.name is 'orders'"):
        queue.register_topic("users", metadata)


def test_registering_a_topic_again_changes_nothing(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    before = queue.get_topic("test-topic")
    clock.advance(SECOND)
    queue.register_topic("test-topic")
    queue.register_topic("test-topic", before)
    assert queue.get_topic("test-topic") == before
    assert len(queue.pull("sub", 10)) == 1


def test_registering_a_topic_with_other_metadata_is_refused(queue: MessageQueue) -> None:
    queue.register_topic("orders")
    with pytest.raises(AlreadyExistsError) as caught:
        queue.register_topic("orders", TopicMetadata(name="orders", created=datetime(2020, 1, 1, tzinfo=UTC)))
    assert caught.value.code == 6


def test_a_registered_subscription_is_listed_with_its_metadata(queue: MessageQueue, clock: ManualClock) -> None:
    options = SubscriptionOptions(ack_deadline_seconds=60, message_ordering=True)
    subscribe(queue, "one")
    subscribe(queue, "two", topic="other", options=options)
    created = from_ms(clock.now_ms())
    one = SubscriptionMetadata(name="one", topic="test-topic", created=created, options=SubscriptionOptions())
    two = SubscriptionMetadata(name="two", topic="other", created=created, options=options)
    assert queue.get_subscription("one") == one
    assert queue.get_all_subscriptions() == [one, two]
    assert queue.get_subscriptions_for_topic("other") == [two]
    assert queue.get_subscription("three") is None
    assert queue.subscription_exists("one")
    assert not queue.subscription_exists("three")


def test_a_subscription_gets_only_what_is_published_after_it(queue: MessageQueue) -> None:
    subscribe(queue)
    queue.publish("test-topic", [message("before")])
    queue.register_subscription("sub", "test-topic")
    queue.publish("test-topic", [message("after")])
    assert [one.data for one in queue.pull("sub", 10)] == [b"after"]


def test_registering_an_equal_subscription_again_changes_nothing(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub", options=SubscriptionOptions(ack_deadline_seconds=60))
    queue.publish("test-topic", numbered(2))
    (held,) = queue.pull("sub", 1)
    before = queue.get_subscription("sub")
    clock.advance(SECOND)
    queue.register_subscription("sub", "test-topic", SubscriptionOptions(ack_deadline_seconds=60))
    assert queue.get_subscription("sub") == before
    queue.ack(held.ack_id)
    assert len(queue.pull("sub", 10)) == 1


def test_registering_a_subscription_with_other_options_or_another_topic_is_refused(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    queue.register_topic("other")
    with pytest.raises(AlreadyExistsError, match="'sub' exists with another message_ordering") as caught:
        queue.register_subscription("sub", "test-topic", SubscriptionOptions(message_ordering=True))
    assert caught.value.code == 6
    with pytest.raises(AlreadyExistsError, match="'sub' exists with another topic"):
        queue.register_subscription("sub", "other")


def test_a_subscription_needs_a_topic_that_exists(queue: MessageQueue) -> None:
    with pytest.raises(NotFoundError) as caught:
        queue.register_subscription("sub", "test-topic")
    assert caught.value.code == 5
    assert str(caught.value).startswith("Topic not found: test-topic")
    assert not queue.subscription_exists("sub")


@pytest.mark.parametrize("name", ["", " ", "a#b", "x" * 256, "naïve", None])
def test_names_that_cannot_be_names_are_refused(queue: MessageQueue, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is not a topic name"):
        queue.register_topic(name)
    queue.register_topic("topic")
    with pytest.raises(InvalidArgumentError, match="is not a subscription name"):
        queue.register_subscription(name, "topic")
    assert queue.get_all_subscriptions() == []


def test_a_subscription_may_not_send_dead_letters_to_its_own_topic(queue: MessageQueue) -> None:
    queue.register_topic("topic")
    policy = DeadLetterPolicy(dead_letter_topic="topic")
    with pytest.raises(InvalidArgumentError, match="another topic than the subscription's own"):
        queue.register_subscription("sub", "topic", SubscriptionOptions(dead_letter_policy=policy))


def test_a_topic_not_found_has_code_5_and_the_text_of_the_specification(queue: MessageQueue) -> None:
    for call in (queue.unregister_topic, lambda name: queue.publish(name, [message()])):
        with pytest.raises(NotFoundError) as caught:
            call("test-topic")
        assert caught.value.code == 5
        assert caught.value.fact == "Topic not found: test-topic"
        assert str(caught.value).startswith("Topic not found: test-topic")
        assert caught.value.remedy == "Register it with register_topic()."


def test_a_subscription_not_found_has_code_5_and_the_text_of_the_specification(queue: MessageQueue) -> None:
    for call in (
        queue.unregister_subscription,
        queue.get_stats,
        queue.get_leases,
        lambda name: queue.pull(name, 1),
    ):
        with pytest.raises(NotFoundError) as caught:
            call("test-sub")
        assert caught.value.code == 5
        assert str(caught.value).startswith("Subscription not found: test-sub")
        assert caught.value.remedy == "Register it with register_subscription()."


def test_br_011_an_unregistered_subscription_is_gone_with_its_messages(queue: MessageQueue) -> None:
    subscribe(queue, "sub", "other")
    queue.publish("test-topic", numbered(3))
    queue.unregister_subscription("sub")
    assert not queue.subscription_exists("sub")
    assert [one.name for one in queue.get_subscriptions_for_topic("test-topic")] == ["other"]
    queue.register_subscription("sub", "test-topic")
    assert queue.pull("sub", 10) == []
    assert len(queue.pull("other", 10)) == 3


def test_br_011_unregistering_a_subscription_ends_what_was_in_flight(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", numbered(3))
    held = queue.pull("sub", 2)
    queue.unregister_subscription("sub")
    with pytest.raises(InvalidAckId):
        queue.ack(held[0].ack_id)
    queue.register_subscription("sub", "test-topic")
    clock.advance(timedelta(minutes=1))
    assert queue.pull("sub", 10) == []
    assert queue.get_leases("sub") == []
    with pytest.raises(InvalidAckId):
        queue.nack(held[1].ack_id)


def test_br_012_unregistering_a_topic_keeps_its_subscriptions_and_clears_their_messages(queue: MessageQueue) -> None:
    subscribe(queue, "one", "two")
    queue.publish("test-topic", numbered(3))
    queue.unregister_topic("test-topic")
    assert not queue.topic_exists("test-topic")
    assert [(one.name, one.topic, one.detached) for one in queue.get_all_subscriptions()] == [
        ("one", "test-topic", True),
        ("two", "test-topic", True),
    ]
    assert queue.get_subscriptions_for_topic("test-topic") == []
    assert queue.get_stats("one") == SubscriptionStats()
    assert queue.pull("one", 10) == []


def test_br_021_unregistering_a_topic_ends_what_was_in_flight(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", numbered(3))
    held = queue.pull("sub", 2)
    queue.unregister_topic("test-topic")
    assert queue.get_leases("sub") == []
    with pytest.raises(InvalidAckId):
        queue.ack(held[0].ack_id)
    clock.advance(timedelta(minutes=1))
    assert queue.pull("sub", 10) == []
    with pytest.raises(InvalidAckId):
        queue.modify_ack_deadline(held[1].ack_id, 60)


def test_br_021_a_detached_subscription_gets_nothing_even_when_its_topic_returns(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    queue.unregister_topic("test-topic")
    queue.register_topic("test-topic")
    queue.publish("test-topic", [message()])
    assert queue.pull("sub", 10) == []
    assert queue.get_subscriptions_for_topic("test-topic") == []
    with pytest.raises(AlreadyExistsError, match="which was unregistered"):
        queue.register_subscription("sub", "test-topic")
    queue.unregister_subscription("sub")
    queue.register_subscription("sub", "test-topic")
    queue.publish("test-topic", [message()])
    assert len(queue.pull("sub", 10)) == 1


def test_options_may_be_none_and_nothing_else_that_is_no_options(queue: MessageQueue) -> None:
    queue.register_topic("orders")
    queue.register_subscription("plain", "orders", None)
    queue.register_subscription("plain", "orders")
    with pytest.raises(InvalidArgumentError, match="Allowed: a SubscriptionOptions, or None"):
        queue.register_subscription("odd", "orders", {"message_ordering": True})  # type: ignore[arg-type]


def test_a_number_is_seconds_where_a_duration_is_wanted() -> None:
    assert SubscriptionOptions(message_retention_duration=600).message_retention_duration == timedelta(minutes=10)  # type: ignore[arg-type]
    policy = BackoffPolicy(minimum_backoff=1, maximum_backoff=2.5)  # type: ignore[arg-type]
    assert (policy.minimum_backoff, policy.maximum_backoff) == (SECOND, 2.5 * SECOND)
    for wrong in ("10s", None, -1, True):
        with pytest.raises(InvalidArgumentError):
            BackoffPolicy(minimum_backoff=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError):
            SubscriptionOptions(message_retention_duration=wrong)  # type: ignore[arg-type]
