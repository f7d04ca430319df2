"""What becomes of messages that no subscriber wants: BR-015, 016 and retention."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.core.clock import ManualClock
from godwit.messagequeue import (
    BackoffPolicy,
    DeadLetterPolicy,
    InternalMessage,
    InvalidArgumentError,
    MessageQueue,
    SubscriptionOptions,
)
from tests.logs import capture_logs
from tests.messagequeue.builders import SECOND, dead_lettering, message, numbered, subscribe, texts, use_up

MILLISECOND = timedelta(milliseconds=1)


@given(
    minimum=st.integers(0, 600_000),
    above=st.integers(0, 600_000),
    attempts=st.integers(1, 12),
    by_expiry=st.booleans(),
)
def test_br_015_a_message_comes_back_exactly_after_its_backoff(
    minimum: int, above: int, attempts: int, by_expiry: bool
) -> None:
    maximum = minimum + above
    policy = BackoffPolicy(minimum_backoff=minimum * MILLISECOND, maximum_backoff=maximum * MILLISECOND)
    clock = ManualClock()
    queue = MessageQueue(clock=clock)
    subscribe(queue, "sub", options=SubscriptionOptions(retry_policy=policy))
    queue.publish("test-topic", [message()])
    for attempt in range(1, attempts + 1):
        (pulled,) = queue.pull("sub", 1)
        assert pulled.delivery_attempt == attempt
        if by_expiry:
            clock.advance(10 * SECOND)
        else:
            queue.nack(pulled.ack_id)
        backoff = min(minimum * 2 ** (attempt - 1), maximum)
        if backoff:
            queue.get_stats("sub")
            clock.advance((backoff - 1) * MILLISECOND)
            assert queue.pull("sub", 1) == []
            clock.advance(MILLISECOND)
    queue.close()


def test_br_015_without_a_retry_policy_a_message_comes_back_at_once(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    for attempt in range(1, 20):
        (pulled,) = queue.pull("sub", 1)
        assert pulled.delivery_attempt == attempt
        queue.nack(pulled.ack_id)


def test_br_015_a_waiting_message_holds_up_no_other(queue: MessageQueue) -> None:
    policy = BackoffPolicy(minimum_backoff=5 * SECOND, maximum_backoff=60 * SECOND)
    subscribe(queue, "sub", options=SubscriptionOptions(retry_policy=policy))
    queue.publish("test-topic", numbered(2))
    queue.nack(queue.pull("sub", 1)[0].ack_id)
    assert texts(queue.pull("sub", 10)) == ["1"]


def test_br_015_impossible_backoffs_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="backoff"):
        BackoffPolicy(minimum_backoff=2 * SECOND, maximum_backoff=SECOND)
    with pytest.raises(InvalidArgumentError, match="backoff"):
        BackoffPolicy(minimum_backoff=-SECOND)


def test_br_016_after_its_last_attempt_a_message_moves_to_the_dead_letter_topic(queue: MessageQueue) -> None:
    subscribe(queue, "sub", options=dead_lettering(attempts=3))
    subscribe(queue, "morgue", topic="dead")
    queue.publish("test-topic", [message()])
    use_up(queue, "sub", 2)
    assert queue.pull("morgue", 10) == []
    use_up(queue, "sub", 1)
    assert queue.pull("sub", 10) == []
    assert queue.get_stats("sub").messages == 0
    assert queue.get_stats("sub").dead_lettered == 1
    assert len(queue.pull("morgue", 10)) == 1


def test_br_016_leases_that_ran_out_count_as_attempts_and_no_call_on_the_source_is_needed(
    queue: MessageQueue, clock: ManualClock
) -> None:
    subscribe(queue, "sub", options=dead_lettering(attempts=2))
    subscribe(queue, "morgue", topic="dead")
    queue.publish("test-topic", [message()])
    for _ in range(2):
        assert len(queue.pull("sub", 1)) == 1
        clock.advance(10 * SECOND)
    assert len(queue.pull("morgue", 10)) == 1


def test_br_016_a_moved_message_keeps_id_time_attributes_and_key(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub", options=dead_lettering(attempts=1))
    subscribe(queue, "one", "two", topic="dead")
    queue.publish("test-topic", [message("data", "key", colour="red")])
    (original,) = queue.pull("sub", 10)
    clock.advance(SECOND)
    queue.nack(original.ack_id)
    for name in ("one", "two"):
        (moved,) = queue.pull(name, 10)
        assert (moved.id, moved.publish_time_ns, moved.publish_time) == (
            original.id,
            original.publish_time_ns,
            original.publish_time,
        )
        assert (moved.data, moved.attributes, moved.ordering_key) == (b"data", {"colour": "red"}, "key")
        assert moved.delivery_attempt == 1
        queue.ack(moved.ack_id)


def test_br_016_dead_letters_move_in_order(queue: MessageQueue) -> None:
    subscribe(queue, "sub", options=dead_lettering(attempts=1))
    subscribe(queue, "morgue", topic="dead")
    queue.publish("test-topic", numbered(5))
    use_up(queue, "sub", 1)
    assert texts(queue.pull("morgue", 10)) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("topic_exists", [False, True])
def test_br_016_without_a_subscription_of_the_dead_letter_topic_the_message_stays(
    queue: MessageQueue, clock: ManualClock, topic_exists: bool
) -> None:
    if topic_exists:
        queue.register_topic("dead")
    subscribe(queue, "sub", options=dead_lettering(attempts=1))
    queue.publish("test-topic", [message("data", "key", colour="red")])
    (original,) = queue.pull("sub", 10)
    with capture_logs() as logs:
        queue.nack(original.ack_id)
        clock.advance(timedelta(days=30))
        assert queue.pull("sub", 10) == []
    stats = queue.get_stats("sub")
    assert (stats.undeliverable, stats.messages, stats.bytes) == (1, 1, original.length)
    assert (stats.dead_lettered, stats.dropped) == (0, 0)
    assert logs[0]["log_level"] == "warning"
    assert (logs[0]["subscription"], logs[0]["dead_letter_topic"], logs[0]["undeliverable"]) == ("sub", "dead", 1)
    subscribe(queue, "morgue", topic="dead")
    (moved,) = queue.pull("morgue", 10)
    assert (moved.id, moved.publish_time_ns) == (original.id, original.publish_time_ns)
    stats = queue.get_stats("sub")
    assert (stats.undeliverable, stats.messages, stats.bytes, stats.dead_lettered) == (0, 0, 0, 1)


def test_br_016_undeliverable_messages_count_toward_the_size_of_their_subscription(queue: MessageQueue) -> None:
    subscribe(queue, "sub", options=dead_lettering(attempts=1))
    queue.publish("test-topic", numbered(9_999))
    for one in queue.pull("sub", 10_000):
        queue.nack(one.ack_id)
    assert queue.get_stats("sub").undeliverable == 9_999
    queue.publish("test-topic", [message("fits"), message("does not")])
    assert texts(queue.pull("sub", 10)) == ["fits"]
    assert queue.get_stats("sub").dropped == 1


def test_br_016_dead_letters_wait_while_every_subscription_of_their_topic_is_full(queue: MessageQueue) -> None:
    subscribe(queue, "sub", options=dead_lettering(attempts=1))
    subscribe(queue, "morgue", topic="dead")
    queue.publish("dead", numbered(10_000))
    queue.publish("test-topic", [message("late")])
    use_up(queue, "sub", 1)
    assert queue.get_stats("sub").undeliverable == 1
    (oldest,) = queue.pull("morgue", 1)
    queue.ack(oldest.ack_id)
    assert queue.get_stats("sub").undeliverable == 0
    assert texts(queue.pull("morgue", 10_000))[-1] == "late"
    assert queue.get_stats("morgue").dropped == 0


def test_br_016_one_full_subscription_of_the_dead_letter_topic_does_not_hold_up_the_others(
    queue: MessageQueue,
) -> None:
    subscribe(queue, "sub", options=dead_lettering(attempts=1))
    subscribe(queue, "full", topic="dead")
    queue.publish("dead", numbered(10_000))
    queue.register_subscription("free", "dead")
    queue.publish("test-topic", [message("late")])
    use_up(queue, "sub", 1)
    assert texts(queue.pull("free", 10)) == ["late"]
    assert queue.get_stats("full").dropped == 1
    assert queue.get_stats("sub").undeliverable == 0


@pytest.mark.parametrize("what", ["subscription", "topic"])
def test_br_016_unregistering_clears_undeliverable_messages(queue: MessageQueue, what: str) -> None:
    subscribe(queue, "sub", options=dead_lettering(attempts=1))
    queue.publish("test-topic", [message()])
    use_up(queue, "sub", 1)
    if what == "topic":
        queue.unregister_topic("test-topic")
        assert not queue._topics.subscriptions["sub"].undeliverable
    else:
        queue.unregister_subscription("sub")
    subscribe(queue, "morgue", topic="dead")
    assert queue.pull("morgue", 10) == []


def test_br_016_impossible_policies_are_refused(queue: MessageQueue) -> None:
    with pytest.raises(InvalidArgumentError, match="max_delivery_attempts"):
        DeadLetterPolicy(dead_letter_topic="dead", max_delivery_attempts=0)
    queue.register_topic("test-topic")
    with pytest.raises(InvalidArgumentError, match="'' is not a topic name"):
        queue.register_subscription("sub", "test-topic", dead_lettering(topic=""))


def test_messages_are_kept_for_seven_days_unless_told(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    subscribe(queue, "short", options=SubscriptionOptions(message_retention_duration=timedelta(hours=1)))
    queue.publish("test-topic", [message("first")])
    clock.advance(timedelta(hours=1))
    assert queue.pull("short", 10) == []
    assert queue.get_stats("short").past_retention == 1
    clock.advance(timedelta(days=7, hours=-1) - MILLISECOND)
    queue.publish("test-topic", [message("second")])
    (first, second) = queue.pull("sub", 10)
    assert (first.data, second.data) == (b"first", b"second")
    queue.nack(first.ack_id)
    queue.nack(second.ack_id)
    clock.advance(MILLISECOND)
    assert texts(queue.pull("sub", 10)) == ["second"]


def test_past_retention_a_message_is_dropped_and_counted(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    subscribe(queue, "morgue", topic="dead")
    queue.publish("test-topic", numbered(3))
    clock.advance(timedelta(days=7))
    stats = queue.get_stats("sub")
    assert (stats.messages, stats.bytes, stats.past_retention, stats.dead_lettered) == (0, 0, 3, 0)
    assert queue.pull("sub", 10) == queue.pull("morgue", 10) == []


def test_past_retention_a_message_is_dead_lettered_where_there_is_a_policy(
    queue: MessageQueue, clock: ManualClock
) -> None:
    subscribe(queue, "sub", options=dead_lettering())
    subscribe(queue, "morgue", topic="dead")
    (message_id,) = queue.publish("test-topic", [message()])
    clock.advance(timedelta(days=7))
    stats = queue.get_stats("sub")
    assert (stats.messages, stats.past_retention, stats.dead_lettered) == (0, 1, 1)
    clock.advance(timedelta(days=7) - MILLISECOND)  # in its new place it is kept as long as anything that comes there
    assert [one.id for one in queue.pull("morgue", 10)] == [message_id]


def test_a_clock_that_went_back_does_not_shorten_the_retention(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub", options=SubscriptionOptions(message_retention_duration=timedelta(hours=1)))
    queue.publish("test-topic", [message("before")])
    clock.advance(timedelta(hours=-2))
    queue.publish("test-topic", [message("after")])
    assert texts(queue.pull("sub", 10)) == ["before", "after"]


def test_after_a_clock_jumped_forward_and_back_a_lease_still_runs_out(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    clock.advance(timedelta(hours=1))
    queue.publish("test-topic", [message("a")])
    assert texts(queue.pull("sub", 1)) == ["a"]
    clock.advance(timedelta(hours=-1))
    assert queue.pull("sub", 1) == []
    clock.advance(timedelta(minutes=20))
    assert texts(queue.pull("sub", 1)) == ["a"]


def test_a_dead_letter_past_the_retention_of_its_new_place_is_dropped_there(
    queue: MessageQueue, clock: ManualClock
) -> None:
    subscribe(queue, "sub", options=dead_lettering(attempts=1))
    short = SubscriptionOptions(message_retention_duration=timedelta(hours=1))
    subscribe(queue, "morgue", topic="dead", options=short)
    queue.publish("test-topic", [message()])
    clock.advance(timedelta(days=1))
    use_up(queue, "sub", 1)
    assert queue.get_stats("morgue").waiting == 1
    clock.advance(timedelta(hours=1))
    stats = queue.get_stats("morgue")
    assert (stats.messages, stats.past_retention) == (0, 1)


def test_a_message_in_flight_past_retention_can_still_be_acked(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(
        queue,
        "sub",
        options=SubscriptionOptions(ack_deadline_seconds=600, message_retention_duration=timedelta(minutes=1)),
    )
    queue.publish("test-topic", numbered(2))
    acked, nacked = queue.pull("sub", 10)
    clock.advance(timedelta(minutes=2))
    queue.ack(acked.ack_id)
    queue.nack(nacked.ack_id)
    assert queue.pull("sub", 10) == []
    assert queue.get_stats("sub").past_retention == 1


def test_a_retention_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="message_retention_duration"):
        SubscriptionOptions(message_retention_duration=timedelta(0))


def test_a_message_that_comes_back_as_a_dead_letter_gets_ack_ids_of_its_own(queue: MessageQueue) -> None:
    subscribe(queue, "sub", options=dead_lettering(attempts=1))
    subscribe(queue, "morgue", topic="dead", options=dead_lettering(attempts=1, topic="test-topic"))
    queue.publish("test-topic", [InternalMessage(data=b"x")])
    (first,) = queue.pull("sub", 10)
    queue.nack(first.ack_id)
    use_up(queue, "morgue", 1)
    (second,) = queue.pull("sub", 10)
    assert (second.id, second.delivery_attempt) == (first.id, 1)
    assert second.ack_id != first.ack_id
