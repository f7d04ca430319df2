"""The limits of BR-017 and everything else a message can have wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from godwit.core.clock import EPOCH, from_ms, milliseconds, to_ms
from godwit.core.errors import InvalidArgumentError, InvalidMessage, InvalidName
from godwit.core.failures.retry import RetryPolicy
from godwit.core.limits import EARLIEST_MS, LARGEST_COUNT, LATEST_MS, LONGEST
from godwit.core.messages.checks import (
    MAX_ATTRIBUTE_KEY_BYTES,
    MAX_ATTRIBUTE_VALUE_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_ORDERING_KEY_BYTES,
    MAX_PAYLOAD_DEPTH,
)
from godwit.core.messages.envelope import seal, seal_all
from godwit.core.messages.message import Message, MessageMetadata, Routing, Scheduling
from godwit.core.names import GroupName, MessageId, QueueName
from tests.hostile_messages import WRONG, zoned

NAIVE = datetime(2026, 1, 1, 12)


def message(**fields: Any) -> Message:
    return Message(queue=QueueName("orders"), **fields)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "good",
    [
        message(attributes={"k" * MAX_ATTRIBUTE_KEY_BYTES: "v" * MAX_ATTRIBUTE_VALUE_BYTES}),
        message(attributes={"ä" * (MAX_ATTRIBUTE_KEY_BYTES // 2): "", "go": "", "Goog": ""}),
        message(ordering_key="k" * MAX_ORDERING_KEY_BYTES),
        message(payload=nested(MAX_PAYLOAD_DEPTH)),
        message(payload=("tuples", "become", "lists")),
        message(payload=2**70),
        message(priority=0),
        message(priority=100),
        message(id=MessageId("x" * 255)),
    ],
)
def test_what_is_exactly_at_a_limit_is_accepted(good: Message) -> None:
    assert seal(good).queue == "orders"


BAD: dict[str, tuple[Message, str]] = {
    "empty attribute key": (message(attributes={"": "v"}), "attribute"),
    "attribute key too long": (message(attributes={"k" * (MAX_ATTRIBUTE_KEY_BYTES + 1): "v"}), "attribute"),
    "attribute key too long in bytes": (message(attributes={"ä" * 129: "v"}), "attribute"),
    "attribute value too long": (message(attributes={"k": "v" * (MAX_ATTRIBUTE_VALUE_BYTES + 1)}), "attribute"),
    "attribute value too long in bytes": (message(attributes={"k": "ä" * 513}), "attribute"),
    "attribute value of another type": (message(attributes={"k": 1}), "attribute"),
    "attribute key of another type": (message(attributes={1: "v"}), "attribute"),
    "reserved attribute": (message(attributes={"goog": "v"}), "attribute"),
    "reserved client attribute": (message(attributes={"googclient_schema": "v"}), "attribute"),
    "header of another type": (message(metadata=MessageMetadata(headers={"k": None})), "header"),  # type: ignore[dict-item]
    "empty ordering key": (message(ordering_key=""), "ordering_key"),
    "ordering key too long": (message(ordering_key="k" * (MAX_ORDERING_KEY_BYTES + 1)), "ordering_key"),
    "ordering key too long in bytes": (message(ordering_key="ä" * 513), "ordering_key"),
    "payload of bytes": (message(payload=b"x"), "payload"),
    "payload with a datetime": (message(payload={"at": [NAIVE]}), "payload.at[0]"),
    "payload with a set": (message(payload={"a": {1}}), "payload.a"),
    "not a number": (message(payload=[1, float("nan")]), "payload[1]"),
    "infinity": (message(payload=float("inf")), "payload"),
    "key that is no string": (message(payload={"a": {1: 2}}), "payload.a"),
    "payload too deep": (message(payload=nested(MAX_PAYLOAD_DEPTH + 1)), "payload" + "[0]" * MAX_PAYLOAD_DEPTH),
    "lone surrogate": (message(payload="\ud800"), "content"),
    "number of too many digits": (message(payload=10**5_000), "content"),
    "too large": (message(payload="x" * MAX_MESSAGE_BYTES), "size"),
    "naive creation": (message(created_at=NAIVE), "created_at"),
    "naive due time": (message(scheduling=Scheduling(deliver_at=NAIVE)), "deliver_at"),
    "naive expiry": (message(expires_at=NAIVE), "expires_at"),
    "expiry that is no time": (message(expires_at="tomorrow"), "expires_at"),
    "negative priority": (message(priority=-1), "priority"),
    "priority over 100": (message(priority=101), "priority"),
    "priority that is no number": (message(priority="high"), "priority"),
    "priority that is a bool": (message(priority=True), "priority"),
    "no queue": (Message(), "queue"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_message_is_refused_naming_the_field(case: str) -> None:
    bad, field = BAD[case]
    with pytest.raises(InvalidMessage) as caught:
        seal(bad)
    assert caught.value.field == field
    assert caught.value.code == 3
    assert caught.value.fact
    assert caught.value.remedy


@pytest.mark.parametrize(
    "bad",
    [
        message(id=""),
        message(id="x" * 256),
        message(id="with space"),
        message(id="ümlaut"),
        message(id=7),
        message(type=""),
        message(type="x" * 101),
        message(type="a\nb"),
        Message(queue=QueueName("or ders")),
        Message(queue=QueueName("{orders}")),
        message(routing=Routing(consumer_group=GroupName(""))),
    ],
)
def test_a_bad_name_is_refused(bad: Message) -> None:
    with pytest.raises(InvalidName):
        seal(bad)


def test_a_batch_names_the_place_of_its_bad_message() -> None:
    with pytest.raises(InvalidMessage, match="Message 1 of the batch") as caught:
        seal_all([message(), message(payload=object()), message(payload=object())])
    assert caught.value.index == 1


def test_a_bad_name_in_a_batch_is_refused_too() -> None:
    with pytest.raises(InvalidArgumentError):
        seal_all([message(), message(id="")])


def test_a_batch_of_nothing_is_nothing() -> None:
    assert seal_all([]) == []


EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-14))
EXTREMES = {
    "year 1": (datetime.min.replace(tzinfo=UTC), EARLIEST_MS),
    "year 1 east of Greenwich": (datetime.min.replace(tzinfo=EAST), EARLIEST_MS),
    "before 1970": (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), EARLIEST_MS),
    "1970": (EPOCH, EARLIEST_MS),
    "the first millisecond": (EPOCH + timedelta(milliseconds=1), 1),
    "a zone with seconds": (zoned(timedelta(seconds=3_217)), 1_767_268_800_000 - 3_217_000),
    "the last": (from_ms(LATEST_MS), LATEST_MS),
    "after the last": (from_ms(LATEST_MS + 1), LATEST_MS),
    "the end of year 9999": (datetime.max.replace(tzinfo=UTC), LATEST_MS),
    "the end of year 9999 west of Greenwich": (datetime.max.replace(tzinfo=WEST), LATEST_MS),
}


@pytest.mark.parametrize("case", EXTREMES)
def test_every_instant_of_a_message_is_moved_inside_the_limits(case: str) -> None:
    instant, expected_ms = EXTREMES[case]
    sealed = seal(message(created_at=instant, expires_at=instant, scheduling=Scheduling(deliver_at=instant)))
    assert (sealed.created_at_ms, sealed.expires_at_ms, sealed.deliver_at_ms) == (expected_ms,) * 3
    for ttl in (timedelta(milliseconds=1), LONGEST):
        from_ms(sealed.expiry_ms(milliseconds(ttl)))
        from_ms(seal(message(created_at=instant)).expiry_ms(milliseconds(ttl)))
    opened = sealed.open()
    assert opened.scheduling is not None
    for read in (opened.created_at, opened.expires_at, opened.scheduling.deliver_at):
        assert read is not None
        assert abs(to_ms(read.astimezone(UTC)) - expected_ms) < 60_000  # JSON knows zones to the minute
    assert opened.expires_at is not None
    assert sealed.expires_at_ms, "0 means never to a broker"


def test_an_expiry_before_1970_is_in_the_first_millisecond_of_1970() -> None:
    assert seal(message(expires_at=datetime.min.replace(tzinfo=UTC))).expires_at_ms == EARLIEST_MS


@pytest.mark.parametrize("offset", [ValueError("no such place"), RuntimeError(), 7, timedelta(days=2), timedelta.max])
def test_a_zone_that_cannot_be_used_is_refused_naming_the_field(offset: object) -> None:
    for fields in (
        {"created_at": zoned(offset)},
        {"expires_at": zoned(offset)},
        {"scheduling": Scheduling(deliver_at=zoned(offset))},
        {"scheduling": Scheduling(starts_at=zoned(offset))},
    ):
        with pytest.raises(InvalidMessage, match="_at is in a zone that cannot be used"):
            seal(message(**fields))


@pytest.mark.parametrize("case", WRONG)
def test_what_no_handler_could_read_is_not_sealed(case: str) -> None:
    with pytest.raises((InvalidMessage, InvalidName)) as caught:
        seal(Message(**{"queue": QueueName("orders"), **WRONG[case]}))
    assert str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "body",
    [
        b'{"payload":' + b"[" * 100_000,
        b'{"retry_policy":{"max_attempts":0}}',
        b'{"retry_policy":{"max_delay":"P9999999999D"}}',
        b'{"payload":' + b"9" * 5_000 + b"}",
        b'{"payload":1e999}',
        b"",
        b"\xff",
    ],
    ids=lambda body: body[:40].decode("ascii", "replace"),
)
def test_opening_what_is_no_message_raises_a_decode_error(body: bytes) -> None:
    envelope = msgspec.structs.replace(seal(message()), body=body)
    with pytest.raises(msgspec.DecodeError):
        envelope.open()


@pytest.mark.parametrize("policy", [b'{"max_attempts":9223372036854775807}', b'{"max_delay":"P999999999D"}'])
def test_a_policy_without_end_is_capped_when_it_is_read(policy: bytes) -> None:
    read = msgspec.structs.replace(seal(message()), body=b'{"retry_policy":' + policy + b"}").open().retry_policy
    assert read is not None
    assert (read.max_attempts, read.max_delay) in {(LARGEST_COUNT, RetryPolicy().max_delay), (3, LONGEST)}
