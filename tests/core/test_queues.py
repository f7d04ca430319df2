from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from godwit.core.errors import InvalidName, InvalidSetting
from godwit.core.limits import LARGEST_COUNT, LONGEST, MOST_BYTES
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import GROUP_FIXED, QUEUE_FIXED, FlowControl, GroupSpec, QueueSpec, QueueType, changed_setting

Q, G = QueueName("q"), GroupName("g")


@pytest.mark.parametrize(
    "settings",
    [
        {"max_size": 0},
        {"max_bytes": -1},
        {"max_delayed": 0},
        {"journal_max_bytes": 0},
        {"journal_attributes": ("a", "a")},
        {"journal_attributes": ("",)},
        {"journal_attributes": ("a" * 257,)},
        {"journal_attributes": tuple("abcdefghi")},
        {"journal_attributes": "tenant"},
        {"journal_attributes": (7,)},
        {"ttl": timedelta(0)},
        {"ttl": timedelta(microseconds=10)},
        {"dedup_window": timedelta(seconds=-1)},
        {"lanes": 2},
        {"lanes": 0},
        {"partitions": 0},
        {"partitions": 257},
        {"min_replicas": -1},
        {"partitions": 4, "max_size": 3},
        {"dead_letter_queue": Q},
        {"ttl": timedelta(seconds=-1)},
        {"ttl": float("nan")},
        {"journal_keep": timedelta(seconds=-1)},
        {"journal_keep": "a day"},
        {"max_size": True},
        {"max_size": 1.5},
        {"max_bytes": float("inf")},
        {"max_delayed": "many"},
        {"priority": 1.5},
        {"priority": True},
        {"priority": float("nan")},
        {"lanes": True},
        {"partitions": 2.0},
        {"min_replicas": True},
        {"type": "nonsense"},
        {"journal_body": []},
    ],
)
def test_impossible_queues_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        QueueSpec(name=Q, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_crashes": 0},
        {"max_crashes": 1.5},
        {"max_delivery_attempts": 0},
        {"max_delivery_attempts": True},
        {"message_ordering": "no"},
        {"forgive_outages": 1},
        {"overflow": "nonsense"},
        {"flow_control": None},
        {"backoff": 5},
    ],
)
def test_impossible_groups_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        GroupSpec(name=G, **settings)


@pytest.mark.parametrize("settings", [{"max_messages": 0}, {"max_messages": 1.5}, {"max_bytes": -5}])
def test_impossible_flow_control_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=r"flow_control\."):
        FlowControl(**settings)


def test_names_are_checked_when_a_spec_is_made() -> None:
    for make in (
        lambda: QueueSpec(name=QueueName("")),
        lambda: QueueSpec(name=Q, dead_letter_queue=QueueName("a b")),
        lambda: GroupSpec(name=GroupName("")),
    ):
        with pytest.raises(InvalidName):
            make()


def test_specs_come_back_from_json_as_they_were() -> None:
    queue = QueueSpec(name=Q, max_size=5, ttl=timedelta(seconds=9), dead_letter_queue=QueueName("d"), lanes=1)
    group = GroupSpec(name=G, message_ordering=True, flow_control=FlowControl(max_messages=2), max_crashes=None)
    assert msgspec.json.decode(msgspec.json.encode(queue), type=QueueSpec) == queue
    assert msgspec.json.decode(msgspec.json.encode(group), type=GroupSpec) == group


def test_what_decides_where_messages_wait_is_fixed() -> None:
    assert changed_setting(QueueSpec(name=Q), QueueSpec(name=Q, lanes=1), QUEUE_FIXED) == "lanes"
    assert changed_setting(QueueSpec(name=Q), QueueSpec(name=Q, max_size=1), QUEUE_FIXED) is None
    assert (
        changed_setting(GroupSpec(name=G), GroupSpec(name=G, message_ordering=True), GROUP_FIXED) == "message_ordering"
    )


ENDLESS = sys.maxsize


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            QueueSpec(name=Q, priority=2**31, max_size=ENDLESS, max_delayed=2**80, max_bytes=ENDLESS),
            QueueSpec(name=Q, priority=2**31 - 1, max_size=2**31 - 1, max_delayed=2**31 - 1, max_bytes=MOST_BYTES),
        ),
        (QueueSpec(name=Q, priority=-ENDLESS), QueueSpec(name=Q, priority=-LARGEST_COUNT)),
        (
            QueueSpec(name=Q, ttl=timedelta.max, dedup_window=timedelta.max, journal_keep=timedelta.max),
            QueueSpec(name=Q, ttl=LONGEST, dedup_window=LONGEST, journal_keep=LONGEST),
        ),
        (QueueSpec(name=Q, journal_max_bytes=2**80), QueueSpec(name=Q, journal_max_bytes=MOST_BYTES)),
        (QueueSpec(name=Q, min_replicas=ENDLESS), QueueSpec(name=Q, min_replicas=LARGEST_COUNT)),
        (QueueSpec(name=Q, ttl=30), QueueSpec(name=Q, ttl=timedelta(seconds=30))),  # type: ignore[arg-type]
        (QueueSpec(name=Q, type="bulk"), QueueSpec(name=Q, type=QueueType.BULK)),  # type: ignore[arg-type]
        (GroupSpec(name=G, max_crashes=ENDLESS), GroupSpec(name=G, max_crashes=LARGEST_COUNT)),
        (GroupSpec(name=G, max_delivery_attempts=2**31), GroupSpec(name=G, max_delivery_attempts=LARGEST_COUNT)),
        (FlowControl(max_messages=ENDLESS), FlowControl(max_messages=LARGEST_COUNT)),
        (FlowControl(max_bytes=2**63), FlowControl(max_bytes=MOST_BYTES)),
    ],
)
def test_what_is_meant_to_be_without_end_becomes_the_largest(spec: msgspec.Struct, expected: msgspec.Struct) -> None:
    assert spec == expected
    assert msgspec.json.decode(msgspec.json.encode(spec), type=type(spec)) == expected


def test_what_is_read_has_the_same_limits_as_what_is_made() -> None:
    words = b'{"name":"q","priority":9223372036854775807,"max_size":9223372036854775807,"dedup_window":"P999999999D"}'
    read = msgspec.json.decode(words, type=QueueSpec)
    assert (read.priority, read.max_size, read.dedup_window) == (LARGEST_COUNT, LARGEST_COUNT, LONGEST)
    with pytest.raises(InvalidSetting):
        msgspec.json.decode(b'{"name":"q","partitions":0}', type=QueueSpec)
