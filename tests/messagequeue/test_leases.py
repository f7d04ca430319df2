"""Pulling and settling: BR-005 to 009, 014, 018, 020, and the clean-up of what is over."""

from __future__ import annotations

from datetime import timedelta

import pytest

from godwit.core.clock import ManualClock, from_ms
from godwit.messagequeue import BackoffPolicy, InvalidAckId, InvalidArgumentError, MessageQueue, SubscriptionOptions
from tests.logs import capture_logs
from tests.messagequeue.builders import SECOND, dead_lettering, message, numbered, subscribe, texts


def test_br_005_a_pull_returns_up_to_max_messages(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", numbered(5))
    assert texts(queue.pull("sub", 3)) == ["0", "1", "2"]
    assert texts(queue.pull("sub", 3)) == ["3", "4"]


def test_br_005_every_delivery_has_an_ack_id_of_its_own(queue: MessageQueue) -> None:
    subscribe(queue, "one", "two")
    queue.publish("test-topic", numbered(50))
    ack_ids = {one.ack_id for name in ("one", "two") for one in queue.pull(name, 100)}
    assert len(ack_ids) == 100
    assert None not in ack_ids


def test_br_005_a_message_in_flight_is_not_pulled_again(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    assert len(queue.pull("sub", 10)) == 1
    clock.advance(timedelta(seconds=9.999))
    assert queue.pull("sub", 10) == []


def test_br_005_a_pull_starts_the_ack_deadline_of_its_subscription(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub", options=SubscriptionOptions(ack_deadline_seconds=60))
    queue.publish("test-topic", [message()])
    clock.advance(timedelta(hours=1))
    (pulled,) = queue.pull("sub", 10)
    (lease,) = queue.get_leases("sub")
    assert lease.message == pulled
    assert lease.ack_id == pulled.ack_id
    assert lease.subscription == "sub"
    assert lease.deadline == from_ms(clock.now_ms()) + timedelta(seconds=60)
    assert lease.deadline_extensions == 0


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, None])
def test_pulling_less_than_one_message_is_refused(queue: MessageQueue, limit: int) -> None:
    subscribe(queue, "sub")
    with pytest.raises(InvalidArgumentError, match="max_messages") as caught:
        queue.pull("sub", limit)
    assert caught.value.code == 3


def test_br_006_an_acked_message_is_gone_for_good(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    (pulled,) = queue.pull("sub", 10)
    queue.ack(pulled.ack_id)
    assert queue.get_leases("sub") == []
    assert queue.get_stats("sub").messages == 0
    clock.advance(timedelta(hours=1))
    assert queue.pull("sub", 10) == []


def test_br_007_a_nack_makes_the_message_available_at_once(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    for attempt in (1, 2, 3):
        (pulled,) = queue.pull("sub", 10)
        assert pulled.delivery_attempt == attempt
        queue.nack(pulled.ack_id)
        assert queue.get_leases("sub") == []
        assert queue.get_stats("sub").in_flight_messages == 0


def test_br_008_a_lease_that_ran_out_returns_the_message_by_itself(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    for attempt in (1, 2, 3):
        (pulled,) = queue.pull("sub", 10)
        assert pulled.delivery_attempt == attempt
        clock.advance(timedelta(seconds=9.999))
        assert queue.get_stats("sub").in_flight_messages == 1
        clock.advance(timedelta(seconds=0.001))
        assert queue.get_stats("sub").in_flight_messages == 0


def test_br_008_without_a_dead_letter_policy_a_message_comes_back_without_limit(
    queue: MessageQueue, clock: ManualClock
) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    for attempt in range(1, 101):
        (pulled,) = queue.pull("sub", 10)
        assert pulled.delivery_attempt == attempt
        if attempt % 2:
            clock.advance(timedelta(seconds=10))
        else:
            queue.nack(pulled.ack_id)


def test_br_008_a_message_whose_lease_ran_out_waits_for_its_backoff(queue: MessageQueue, clock: ManualClock) -> None:
    policy = BackoffPolicy(minimum_backoff=5 * SECOND, maximum_backoff=60 * SECOND)
    subscribe(queue, "sub", options=SubscriptionOptions(retry_policy=policy))
    queue.publish("test-topic", [message()])
    queue.pull("sub", 10)
    clock.advance(timedelta(seconds=10))
    assert queue.pull("sub", 10) == []
    clock.advance(timedelta(seconds=4.999))
    assert queue.pull("sub", 10) == []
    clock.advance(timedelta(seconds=0.001))
    assert [one.delivery_attempt for one in queue.pull("sub", 10)] == [2]


def test_br_008_the_ack_deadline_is_10_seconds_unless_told() -> None:
    assert SubscriptionOptions().ack_deadline_seconds == 10


@pytest.mark.parametrize("seconds", [9, 601, 0, -10, 10.5, True, "10"])
def test_br_008_an_ack_deadline_outside_10_to_600_seconds_is_refused(seconds: int) -> None:
    with pytest.raises(InvalidArgumentError, match=r"ack_deadline_seconds is .* 10 to 600") as caught:
        SubscriptionOptions(ack_deadline_seconds=seconds)
    assert caught.value.code == 3


@pytest.mark.parametrize("seconds", [10, 600])
def test_br_008_the_limits_of_the_ack_deadline_are_allowed(
    queue: MessageQueue, clock: ManualClock, seconds: int
) -> None:
    subscribe(queue, "sub", options=SubscriptionOptions(ack_deadline_seconds=seconds))
    queue.publish("test-topic", [message()])
    queue.pull("sub", 1)
    clock.advance(timedelta(seconds=seconds, milliseconds=-1))
    assert queue.pull("sub", 1) == []
    clock.advance(timedelta(milliseconds=1))
    assert len(queue.pull("sub", 1)) == 1


def test_br_009_a_deadline_can_be_extended_again_and_again(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    (pulled,) = queue.pull("sub", 10)
    for extensions in range(1, 6):
        clock.advance(timedelta(seconds=9))
        queue.modify_ack_deadline(pulled.ack_id, 10)
        (lease,) = queue.get_leases("sub")
        assert lease.deadline_extensions == extensions
        assert lease.deadline == from_ms(clock.now_ms()) + timedelta(seconds=10)
    assert queue.pull("sub", 10) == []
    queue.ack(pulled.ack_id)


def test_br_009_the_new_deadline_counts_from_now(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub", options=SubscriptionOptions(ack_deadline_seconds=600))
    queue.publish("test-topic", [message()])
    (pulled,) = queue.pull("sub", 10)
    queue.modify_ack_deadline(pulled.ack_id, 1)
    clock.advance(timedelta(seconds=1))
    with pytest.raises(InvalidAckId):
        queue.ack(pulled.ack_id)
    assert [one.delivery_attempt for one in queue.pull("sub", 10)] == [2]


def test_br_009_a_deadline_of_0_seconds_is_a_nack(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    (pulled,) = queue.pull("sub", 10)
    queue.modify_ack_deadline(pulled.ack_id, 0)
    assert [one.delivery_attempt for one in queue.pull("sub", 10)] == [2]


@pytest.mark.parametrize("seconds", [-1, 601, 1.5, True])
def test_br_009_a_deadline_outside_0_to_600_seconds_is_refused(queue: MessageQueue, seconds: int) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    (pulled,) = queue.pull("sub", 10)
    before = queue.get_leases("sub")
    with pytest.raises(InvalidArgumentError, match="seconds is") as caught:
        queue.modify_ack_deadline(pulled.ack_id, seconds)
    assert caught.value.code == 3
    assert queue.get_leases("sub") == before


def test_br_014_count_and_bytes_in_flight_follow_pull_ack_nack_and_expiry(
    queue: MessageQueue, clock: ManualClock
) -> None:
    subscribe(queue, "sub", "other")
    queue.publish("test-topic", [message("x" * size) for size in (1, 20, 300, 4_000)])

    def in_flight() -> tuple[int, int]:
        stats = queue.get_stats("sub")
        return stats.in_flight_messages, stats.in_flight_bytes

    assert in_flight() == (0, 0)
    one, two, three = queue.pull("sub", 3)
    assert in_flight() == (3, 321)
    queue.ack(one.ack_id)
    assert in_flight() == (2, 320)
    queue.nack(two.ack_id)
    assert in_flight() == (1, 300)
    queue.modify_ack_deadline(three.ack_id, 30)
    assert in_flight() == (1, 300)
    clock.advance(timedelta(seconds=30))
    assert in_flight() == (0, 0)
    assert queue.get_stats("sub").waiting == 3
    assert queue.get_stats("sub").bytes == 4_320
    assert queue.get_stats("other").in_flight_messages == 0


def test_br_018_an_ack_id_names_its_subscription_and_attempt_and_settles_no_other(queue: MessageQueue) -> None:
    subscribe(queue, "sub-1", "sub-2")
    queue.publish("test-topic", [message()])
    (one,) = queue.pull("sub-1", 10)
    (two,) = queue.pull("sub-2", 10)
    assert one.id == two.id
    assert one.ack_id is not None
    assert one.ack_id.startswith("sub-1#")
    assert one.ack_id.endswith("-1")
    queue.ack(one.ack_id)
    assert len(queue.get_leases("sub-2")) == 1
    queue.nack(two.ack_id)
    (two,) = queue.pull("sub-2", 10)
    assert str(two.ack_id).endswith("-2")


def test_br_018_only_the_newest_ack_id_of_a_message_is_valid(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    (first,) = queue.pull("sub", 10)
    clock.advance(timedelta(seconds=10))
    (second,) = queue.pull("sub", 10)
    assert second.ack_id != first.ack_id
    for settle in (queue.ack, queue.nack, lambda ack_id: queue.modify_ack_deadline(ack_id, 60)):
        with pytest.raises(InvalidAckId):
            settle(first.ack_id)
    assert [lease.ack_id for lease in queue.get_leases("sub")] == [second.ack_id]
    queue.ack(second.ack_id)


def test_br_018_an_expired_ack_id_is_refused_even_before_anybody_pulls(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    (pulled,) = queue.pull("sub", 10)
    clock.advance(timedelta(seconds=10))
    with pytest.raises(InvalidAckId):
        queue.ack(pulled.ack_id)
    assert [one.delivery_attempt for one in queue.pull("sub", 10)] == [2]


def test_br_018_an_ack_id_works_once(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", numbered(2))
    acked, nacked = queue.pull("sub", 10)
    queue.ack(acked.ack_id)
    queue.nack(nacked.ack_id)
    for ack_id in (acked.ack_id, nacked.ack_id):
        with pytest.raises(InvalidAckId):
            queue.ack(ack_id)


@pytest.mark.parametrize("ack_id", ["abc123", "", None, "sub", "sub#0#default#1-1", "other#0#default#1-1"])
def test_br_018_an_unknown_ack_id_has_code_3_and_the_text_of_the_specification(
    queue: MessageQueue, ack_id: str | None
) -> None:
    subscribe(queue, "sub")
    for settle in (queue.ack, queue.nack, lambda ack_id: queue.modify_ack_deadline(ack_id, 10)):
        with pytest.raises(InvalidArgumentError) as caught:
            settle(ack_id)
        assert caught.value.code == 3
        assert isinstance(caught.value, InvalidAckId)
        assert caught.value.fact == f"Invalid ack ID: {ack_id}"
        assert str(caught.value).startswith(f"Invalid ack ID: {ack_id}")
        assert "pull again" in caught.value.remedy


def test_br_018_an_ack_id_with_another_attempt_is_refused(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    (pulled,) = queue.pull("sub", 10)
    with pytest.raises(InvalidAckId):
        queue.ack(f"{pulled.ack_id}0")
    with pytest.raises(InvalidAckId):
        queue.ack(str(pulled.ack_id).rpartition("-")[0] + "-2")
    queue.ack(pulled.ack_id)


def test_br_020_a_settled_lease_leaves_nothing_behind(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", numbered(4))
    acked, nacked, refused, extended = queue.pull("sub", 10)
    queue.modify_ack_deadline(extended.ack_id, 60)
    queue.ack(extended.ack_id)
    queue.ack(acked.ack_id)
    queue.nack(nacked.ack_id)
    queue.modify_ack_deadline(refused.ack_id, 0)
    subscription = queue._topics.subscriptions["sub"]
    assert subscription.leases == {}
    assert subscription._extensions == {}
    assert queue._topics.engine._held == {}
    assert queue.get_stats("sub").expired_ack_ids == 0


def test_expired_ack_ids_are_forgotten_after_ten_minutes_by_a_clean_up_every_60_seconds(
    queue: MessageQueue, clock: ManualClock
) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    (pulled,) = queue.pull("sub", 10)
    clock.advance(timedelta(seconds=10))
    assert queue.get_stats("sub").expired_ack_ids == 1
    clock.advance(timedelta(minutes=10) - SECOND)  # a second too early for the clean-up that this call runs
    assert queue.get_stats("sub").expired_ack_ids == 1
    clock.advance(timedelta(seconds=59))
    assert queue.get_stats("sub").expired_ack_ids == 1
    clock.advance(SECOND)  # 60 s after the last clean-up
    assert queue.get_stats("sub").expired_ack_ids == 0
    with pytest.raises(InvalidAckId):
        queue.ack(pulled.ack_id)


def test_a_settlement_after_the_deadline_is_told_from_a_wrong_ack_id_in_the_log(
    queue: MessageQueue, clock: ManualClock
) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", [message()])
    (pulled,) = queue.pull("sub", 10)
    clock.advance(timedelta(seconds=10))
    queue.topic_exists("any call takes the message back")
    clock.advance(timedelta(seconds=3))
    with capture_logs() as logs:
        for ack_id in ("sub#0#default#unknown-1", pulled.ack_id):
            with pytest.raises(InvalidAckId):
                queue.ack(ack_id)
    assert [(log["log_level"], log["subscription"], log["late_ms"]) for log in logs] == [("warning", "sub", 3_000)]


def test_only_so_many_expired_ack_ids_are_remembered(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", numbered(6_000))
    for _ in range(3):
        assert len(queue.pull("sub", 6_000)) == 6_000
        clock.advance(timedelta(seconds=10))
    assert queue.get_stats("sub").expired_ack_ids == 10_000


def test_any_call_takes_back_what_is_due_in_every_subscription(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "one", "two")
    queue.publish("test-topic", [message()])
    for name in ("one", "two"):
        queue.pull(name, 1)
    clock.advance(timedelta(seconds=10))
    queue.topic_exists("test-topic")
    assert [queue._topics.subscriptions[name].leases for name in ("one", "two")] == [{}, {}]


def test_a_clock_that_goes_back_takes_nothing_back_early_or_twice(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub", options=dead_lettering(attempts=5))
    queue.publish("test-topic", [message()])
    queue.pull("sub", 1)
    clock.advance(timedelta(seconds=-100))
    assert queue.pull("sub", 1) == []
    clock.advance(timedelta(seconds=109))
    assert queue.pull("sub", 1) == []
    clock.advance(SECOND)
    assert [one.delivery_attempt for one in queue.pull("sub", 1)] == [2]
