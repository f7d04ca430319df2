from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.core.failures.retry import RetryPolicy, Strategy
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Kind, Message, MessageMetadata, Priority, Routing, Scheduling
from godwit.core.names import GroupName, MessageId, QueueName

GOLDEN = Path(__file__).parent / "golden" / "message-v1.json"
NOON = datetime(2026, 3, 1, 12, 0, 0, 123000, tzinfo=UTC)

FULL = Message(
    id=MessageId("order-7"),
    queue=QueueName("orders"),
    type="order.created",
    kind=Kind.SCHEDULED,
    priority=75,
    payload={"id": 7, "lines": [{"sku": "ä", "n": 1.5}, None, True]},
    attributes={"tenant": "t1"},
    metadata=MessageMetadata(
        correlation_id="c1",
        user_id="u1",
        source="shop",
        version="1.1",
        encoding="utf-8",
        headers={"h": "1"},
        encrypted=True,
        key_id="k1",
    ),
    routing=Routing(target_queue=QueueName("orders"), consumer_group=GroupName("billing")),
    scheduling=Scheduling(
        deliver_at=NOON,
        cron="0 9 * * *",
        timezone="Europe/Berlin",
        starts_at=NOON,
        ends_at=NOON,
        max_occurrences=3,
        schedule_id="s1",
        campaign="spring",
    ),
    retry_policy=RetryPolicy(max_attempts=5, strategy=Strategy.LINEAR, by_kind={"timeout": Strategy.FIXED}),
    ordering_key="customer-1",
    created_at=NOON,
    expires_at=NOON + timedelta(days=1),
    replay_of=MessageId("order-6"),
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


def test_the_wire_format_is_the_committed_one() -> None:
    assert msgspec.json.format(seal(FULL).body, indent=2).decode() + "\n" == GOLDEN.read_text(encoding="utf-8")


def test_a_message_written_by_the_first_version_is_still_read() -> None:
    assert msgspec.json.decode(GOLDEN.read_bytes(), type=Message) == FULL


def test_fields_of_a_newer_version_are_ignored() -> None:
    newer = msgspec.json.decode(GOLDEN.read_bytes()) | {"invented_later": [1], "metadata": {"source": "x", "new": 1}}
    assert msgspec.json.decode(msgspec.json.encode(newer), type=Message).metadata.source == "x"


def test_fields_at_their_default_are_not_sent() -> None:
    body = msgspec.json.decode(seal(Message(queue=QueueName("q"), payload=1)).body)
    assert set(body) == {"id", "queue", "payload", "created_at"}


@given(payload=JSON)
def test_any_json_payload_comes_back_as_it_went(payload: object) -> None:
    assert seal(Message(queue=QueueName("q"), payload=payload)).open().payload == payload


def test_a_message_comes_back_as_it_went() -> None:
    assert seal(FULL).open() == FULL


def test_the_envelope_repeats_what_brokers_need() -> None:
    envelope = seal(FULL)
    assert (envelope.id, envelope.queue, envelope.type, envelope.priority) == ("order-7", "orders", "order.created", 75)
    assert (envelope.ordering_key, envelope.group, envelope.replay_of) == ("customer-1", "billing", "order-6")
    assert (envelope.schedule_id, envelope.campaign) == ("s1", "spring")
    assert envelope.created_at_ms == envelope.deliver_at_ms == 1_772_366_400_123
    assert envelope.expires_at_ms == 1_772_366_400_123 + 86_400_000
    assert envelope.size == len(envelope.body)


def test_instants_of_any_zone_are_the_same_instant() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=-7)))
    assert seal(Message(queue=QueueName("q"), created_at=there)).created_at_ms == 1_772_366_400_123


def test_a_target_queue_wins_over_the_queue() -> None:
    routed = Message(queue=QueueName("q"), routing=Routing(target_queue=QueueName("other")))
    assert seal(routed).queue == "other"


@pytest.mark.parametrize(
    ("kind", "priority"),
    [(Kind.IMMEDIATE, 100), (Kind.STANDARD, 50), (Kind.BULK, 10), (Kind.SCHEDULED, 50), (Kind.RECURRING, 50)],
)
def test_a_kind_sets_the_priority_unless_one_is_given(kind: Kind, priority: int) -> None:
    assert seal(Message(queue=QueueName("q"), kind=kind)).priority == priority
    assert seal(Message(queue=QueueName("q"), kind=kind, priority=Priority.HIGH)).priority == 75
    assert seal(Message(queue=QueueName("q"), kind=kind, priority=0)).priority == 0


def test_every_message_has_its_own_id() -> None:
    assert Message().id != Message().id


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        FULL.priority = 1  # type: ignore[misc]
