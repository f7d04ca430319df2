"""What publish gives, refuses and drops: BR-003, 004, 017, 022."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from godwit.core.clock import ManualClock, from_ms
from godwit.messagequeue import InternalMessage, InvalidArgumentError, MessageQueue, SubscriptionOptions
from tests.logs import capture_logs
from tests.messagequeue.builders import message, numbered, subscribe, texts

MB = 1 << 20


def test_br_003_every_message_gets_an_id_of_its_own_in_order(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    ids = queue.publish("test-topic", numbered(100)) + queue.publish("test-topic", numbered(100))
    assert len(set(ids)) == 200
    assert [one.id for one in queue.pull("sub", 200)] == ids


def test_br_003_ids_are_unique_over_all_topics(queue: MessageQueue) -> None:
    queue.register_topic("one")
    queue.register_topic("two")
    same = message()
    ids = [queue.publish(topic, [same])[0] for topic in ("one", "two") * 50]
    assert len(set(ids)) == 100


def test_br_003_the_callers_id_time_and_attempt_are_ignored_and_nothing_is_deduplicated(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    given = InternalMessage(
        id="msg-1", data=b"x", publish_time=datetime(2020, 1, 1, tzinfo=UTC), publish_time_ns=5, delivery_attempt=9
    )
    ids = queue.publish("test-topic", [given, given])
    pulled = queue.pull("sub", 10)
    assert [one.id for one in pulled] == ids
    assert "msg-1" not in ids
    assert {one.delivery_attempt for one in pulled} == {1}
    assert all(one.publish_time.year == 2025 and one.publish_time_ns > 5 for one in pulled)


def test_br_003_publish_sets_the_publish_time(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    clock.advance(timedelta(hours=1))
    queue.publish("test-topic", [message()])
    published_ms = clock.now_ms()
    clock.advance(timedelta(hours=1))
    (pulled,) = queue.pull("sub", 10)
    assert pulled.publish_time == from_ms(published_ms)
    assert pulled.publish_time.tzinfo is UTC
    assert pulled.publish_time_ns == published_ms * 1_000_000


def test_publish_times_increase_strictly_even_when_the_clock_stands_still_or_goes_back(
    queue: MessageQueue, clock: ManualClock
) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", numbered(3))
    clock.advance(timedelta(seconds=-5))
    queue.publish("test-topic", numbered(3))
    pulled = queue.pull("sub", 10)
    nanoseconds = [one.publish_time_ns for one in pulled]
    assert sorted(set(nanoseconds)) == nanoseconds
    assert len({one.publish_time for one in pulled}) == 6


def test_br_003_every_subscription_gets_a_copy_of_its_own(queue: MessageQueue) -> None:
    subscribe(queue, "one", "two")
    given = message("data", "key", colour="red")
    queue.publish("test-topic", [given])
    given.attributes["colour"] = "changed after publishing"
    (first,) = queue.pull("one", 10)
    first.attributes["colour"] = "changed by a receiver"
    queue.ack(first.ack_id)
    (second,) = queue.pull("two", 10)
    assert second.attributes == {"colour": "red"}
    assert (second.id, second.data, second.ordering_key) == (first.id, b"data", "key")


def test_br_004_without_a_subscription_ids_are_returned_and_messages_discarded(queue: MessageQueue) -> None:
    queue.register_topic("test-topic")
    assert len(set(queue.publish("test-topic", numbered(3)))) == 3
    queue.register_subscription("sub", "test-topic")
    assert queue.pull("sub", 10) == []


def test_publishing_nothing_returns_nothing(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    assert queue.publish("test-topic", []) == []
    assert queue.pull("sub", 10) == []


def test_length_counts_data_attributes_and_ordering_key_in_bytes() -> None:
    assert message("").length == 0
    assert message("äb", "ключ", größe="€").length == 3 + 8 + 7 + 3


def test_a_message_not_pulled_has_no_ack_id() -> None:
    assert message().ack_id is None
    assert message().publish_time.tzinfo is UTC


BAD: dict[str, tuple[Any, str]] = {
    "key over 256 bytes": (InternalMessage(data=b"", attributes={"ä" * 129: ""}), "longer than 256 bytes"),
    "value over 1024 bytes": (InternalMessage(data=b"", attributes={"k": "ä" * 513}), "longer than 1024 bytes"),
    "empty key": (InternalMessage(data=b"", attributes={"": "v"}), "empty"),
    "goog": (InternalMessage(data=b"", attributes={"google": "v"}), "reserved prefix"),
    "googclient_": (InternalMessage(data=b"", attributes={"googclient_x": "v"}), "reserved prefix"),
    "value not a string": (InternalMessage(data=b"", attributes={"k": 1}), "value of type int"),  # type: ignore[dict-item]
    "key not a string": (InternalMessage(data=b"", attributes={1: "v"}), "not a string"),  # type: ignore[dict-item]
    "no dict": (InternalMessage(data=b"", attributes=[]), "attributes are of type list"),  # type: ignore[arg-type]
    "text as data": (InternalMessage(data="text"), "data is of type str"),  # type: ignore[arg-type]
    "empty ordering key": (InternalMessage(data=b"", ordering_key=""), "ordering_key"),
    "lone surrogate": (InternalMessage(data=b"", attributes={"k": "\ud800"}), "not Unicode"),
    "lone surrogate in the ordering key": (InternalMessage(data=b"", ordering_key="\ud800"), "not Unicode"),
    "no message": ({"data": b"x"}, "type is dict"),
    "over 10 MB": (InternalMessage(data=bytes(10 * MB - 1), attributes={"k": "v"}), "10,485,761 bytes"),
}


@pytest.mark.parametrize(("bad", "says"), BAD.values(), ids=BAD.keys())
def test_br_017_a_bad_message_refuses_the_whole_batch_with_code_3(
    queue: MessageQueue, bad: InternalMessage, says: str
) -> None:
    subscribe(queue, "sub")
    with pytest.raises(InvalidArgumentError, match="Message 1 of the batch") as caught:
        queue.publish("test-topic", [message("good"), bad, message("good")])
    assert caught.value.code == 3
    assert says in str(caught.value)
    assert queue.pull("sub", 10) == []


def test_br_017_what_just_fits_is_accepted(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    largest = InternalMessage(data=bytes(10 * MB - 2), attributes={"k": "v"})
    longest = InternalMessage(data=b"", attributes={"ä" * 128: "ä" * 512, "goo": "", "Goog": ""})
    queue.publish("test-topic", [largest, longest])
    pulled = queue.pull("sub", 10)
    assert [one.length for one in pulled] == [10 * MB, 256 + 1024 + 3 + 4]
    assert pulled[1].attributes == longest.attributes


def test_br_022_a_full_subscription_drops_new_messages_and_others_go_on(queue: MessageQueue) -> None:
    subscribe(queue, "slow", "quick")
    queue.publish("test-topic", numbered(9_999))
    for one in queue.pull("quick", 10_000):
        queue.ack(one.ack_id)
    with capture_logs() as logs:
        ids = queue.publish("test-topic", [message("fits"), message("does not"), message("neither")])
    assert len(ids) == 3
    assert texts(queue.pull("quick", 10)) == ["fits", "does not", "neither"]
    stats = queue.get_stats("slow")
    assert (stats.messages, stats.dropped) == (10_000, 2)
    assert texts(queue.pull("slow", 20_000))[-1] == "fits"
    assert [(log["log_level"], log["subscription"], log["messages"]) for log in logs] == [("warning", "slow", 10_000)]


def test_br_022_messages_in_flight_count_and_an_ack_makes_room(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", numbered(10_000))
    held = queue.pull("sub", 10_000)
    queue.publish("test-topic", [message("dropped")])
    queue.ack(held[0].ack_id)
    queue.publish("test-topic", [message("accepted"), message("dropped")])
    assert texts(queue.pull("sub", 10)) == ["accepted"]
    assert queue.get_stats("sub").dropped == 2


def test_br_022_a_subscription_takes_100_mb(queue: MessageQueue) -> None:
    subscribe(queue, "sub")
    ten = InternalMessage(data=bytes(10 * MB))
    queue.publish("test-topic", [ten] * 9 + [InternalMessage(data=bytes(10 * MB - 1))])
    queue.publish("test-topic", [message("xy"), message("x")])
    stats = queue.get_stats("sub")
    assert (stats.messages, stats.bytes, stats.dropped) == (11, 100 * MB, 1)
    (oldest,) = queue.pull("sub", 1)
    queue.publish("test-topic", [message("x")])
    assert queue.get_stats("sub").dropped == 2
    queue.ack(oldest.ack_id)
    queue.publish("test-topic", [ten])
    assert queue.get_stats("sub").bytes == 100 * MB


def test_br_022_the_warning_is_repeated_at_most_once_a_minute(queue: MessageQueue, clock: ManualClock) -> None:
    subscribe(queue, "sub")
    queue.publish("test-topic", numbered(10_000))
    with capture_logs() as logs:
        for _ in range(7):
            queue.publish("test-topic", [message()])
            clock.advance(timedelta(seconds=15))
    assert len(logs) == 2


def test_options_and_messages_are_frozen() -> None:
    with pytest.raises(AttributeError):
        message().data = b""  # type: ignore[misc]
    with pytest.raises(AttributeError):
        SubscriptionOptions().message_ordering = True  # type: ignore[misc]
    assert msgspec.structs.replace(message("a"), data=b"b").data == b"b"
