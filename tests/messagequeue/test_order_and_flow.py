"""In which order messages come, and how many at once: BR-010, 013, 019."""

from __future__ import annotations

from datetime import timedelta

import pytest

from godwit.core.clock import ManualClock
from godwit.messagequeue import BackoffPolicy, FlowControl, InvalidArgumentError, MessageQueue, SubscriptionOptions
from tests.messagequeue.builders import SECOND, dead_lettering, message, numbered, subscribe, texts

ORDERED = SubscriptionOptions(message_ordering=True)


def test_br_010_without_message_ordering_keys_are_ignored(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", numbered(3, "key"))
    assert texts(queue.pull("sub", 10)) == ["0", "1", "2"]


def test_br_010_messages_of_one_key_come_one_at_a_time_in_publish_order(queue: MessageQueue) -> None:
    subscribe(queue, "sub", options=ORDERED)
    queue.publish("test-topic", numbered(5, "key"))
    seen = []
    while pulled := queue.pull("sub", 10):
        assert len(pulled) == 1
        assert queue.pull("sub", 10) == []
        seen += texts(pulled)
        queue.ack(pulled[0].ack_id)
    assert seen == ["0", "1", "2", "3", "4"]


def test_br_010_a_nacked_or_expired_message_blocks_its_key_until_it_is_acked(
    queue: MessageQueue, clock: ManualClock
) -> None:
    policy = BackoffPolicy(minimum_backoff=5 * SECOND, maximum_backoff=5 * SECOND)
    subscribe(queue, "sub", options=SubscriptionOptions(message_ordering=True, retry_policy=policy))
    queue.publish("test-topic", numbered(2, "key"))
    (first,) = queue.pull("sub", 10)
    queue.nack(first.ack_id)
    assert queue.pull("sub", 10) == []
    clock.advance(timedelta(seconds=5))
    assert texts(queue.pull("sub", 10)) == ["0"]
    clock.advance(timedelta(seconds=10))
    assert queue.pull("sub", 10) == []
    clock.advance(timedelta(seconds=5))
    (first,) = queue.pull("sub", 10)
    assert (first.data, first.delivery_attempt) == (b"0", 3)
    queue.ack(first.ack_id)
    assert texts(queue.pull("sub", 10)) == ["1"]


def test_br_010_different_keys_and_messages_without_a_key_are_not_blocked(queue: MessageQueue) -> None:
    subscribe(queue, "sub", options=ORDERED)
    queue.publish(
        "test-topic",
        [message("a1", "a"), message("a2", "a"), message("b1", "b"), message("none 1"), message("none 2")],
    )
    assert texts(queue.pull("sub", 10)) == ["a1", "b1", "none 1", "none 2"]


def test_br_010_a_dead_lettered_head_releases_its_key(queue: MessageQueue) -> None:
    options = SubscriptionOptions(
        message_ordering=True, dead_letter_policy=dead_lettering(attempts=1).dead_letter_policy
    )
    subscribe(queue, "sub", options=options)
    queue.publish("test-topic", numbered(2, "key"))
    (head,) = queue.pull("sub", 10)
    queue.nack(head.ack_id)
    assert texts(queue.pull("sub", 10)) == ["1"]


def test_br_010_a_head_past_retention_releases_its_key(queue: MessageQueue, clock: ManualClock) -> None:
    options = SubscriptionOptions(message_ordering=True, message_retention_duration=timedelta(hours=1))
    subscribe(queue, "sub", options=options)
    queue.publish("test-topic", [message("old", "key")])
    clock.advance(timedelta(minutes=30))
    queue.publish("test-topic", [message("new", "key")])
    clock.advance(timedelta(minutes=30))
    assert texts(queue.pull("sub", 10)) == ["new"]


def test_br_013_a_pull_leases_no_more_than_the_free_count(queue: MessageQueue) -> None:
    subscribe(queue, "sub", options=SubscriptionOptions(flow_control=FlowControl(max_messages=3)))
    queue.publish("test-topic", numbered(10))
    first = queue.pull("sub", 2)
    assert texts(first) == ["0", "1"]
    assert texts(queue.pull("sub", 10)) == ["2"]
    assert queue.pull("sub", 10) == []
    queue.ack(first[0].ack_id)
    assert texts(queue.pull("sub", 10)) == ["3"]
    queue.nack(first[1].ack_id)
    assert texts(queue.pull("sub", 10)) == ["1"]


def test_br_013_a_pull_leases_no_more_than_the_free_bytes(queue: MessageQueue) -> None:
    subscribe(queue, "sub", options=SubscriptionOptions(flow_control=FlowControl(max_bytes=10)))
    queue.publish("test-topic", [message("x" * 4)] * 4)
    first = queue.pull("sub", 10)
    assert len(first) == 2
    assert queue.pull("sub", 10) == []
    queue.ack(first[0].ack_id)
    assert len(queue.pull("sub", 10)) == 1


def test_br_013_a_message_larger_than_the_byte_limit_comes_alone(queue: MessageQueue) -> None:
    subscribe(queue, "sub", options=SubscriptionOptions(flow_control=FlowControl(max_bytes=10)))
    queue.publish("test-topic", [message("small"), message("x" * 100), message("next")])
    (small,) = queue.pull("sub", 10)
    assert queue.pull("sub", 10) == []
    queue.ack(small.ack_id)
    (large,) = queue.pull("sub", 10)
    assert len(large.data) == 100
    assert queue.pull("sub", 10) == []
    queue.ack(large.ack_id)
    assert texts(queue.pull("sub", 10)) == ["next"]


def test_br_013_a_lease_that_ran_out_gives_its_capacity_back(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub", options=SubscriptionOptions(flow_control=FlowControl(max_messages=1)))
    queue.publish("test-topic", numbered(2))
    queue.pull("sub", 10)
    assert queue.pull("sub", 10) == []
    clock.advance(timedelta(seconds=10))
    assert texts(queue.pull("sub", 10)) == ["0"]


def test_br_013_limits_below_one_are_refused() -> None:
    for limits in ({"max_messages": 0}, {"max_bytes": 0}):
        with pytest.raises(InvalidArgumentError, match="flow_control"):
            FlowControl(**limits)


def test_br_019_messages_come_in_publish_order(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    for start in range(0, 500, 50):
        queue.publish("test-topic", [message(str(start + number)) for number in range(50)])
    pulled = [text for _ in range(25) for text in texts(queue.pull("sub", 20))]
    assert pulled == [str(number) for number in range(500)]


def test_br_019_a_returned_message_comes_at_its_publish_position(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", numbered(5))
    first, second, third = queue.pull("sub", 3)
    queue.nack(third.ack_id)
    queue.nack(first.ack_id)
    assert texts(queue.pull("sub", 1)) == ["0"]
    clock.advance(timedelta(seconds=10))
    assert texts(queue.pull("sub", 10)) == ["0", "1", "2", "3", "4"]
    assert second.delivery_attempt == 1


def test_br_019_every_key_keeps_an_order_of_its_own(queue: MessageQueue) -> None:
    subscribe(queue, "sub", options=ORDERED)
    queue.publish("test-topic", [message(f"{key}{number}", key) for number in range(4) for key in "abc"])
    seen: dict[str | None, list[str]] = {"a": [], "b": [], "c": []}
    while pulled := queue.pull("sub", 10):
        assert {one.ordering_key for one in pulled} == {"a", "b", "c"}
        for one in reversed(pulled):
            seen[one.ordering_key].append(one.data.decode())
            queue.ack(one.ack_id)
    assert seen == {key: [f"{key}{number}" for number in range(4)] for key in "abc"}
