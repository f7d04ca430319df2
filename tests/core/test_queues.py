from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from godwit.core.errors import InvalidName, InvalidSetting
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import GROUP_FIXED, QUEUE_FIXED, FlowControl, GroupSpec, QueueSpec, changed_setting

Q, G = QueueName("q"), GroupName("g")


@pytest.mark.parametrize(
    "settings",
    [
        {"max_size": 0},
        {"max_bytes": -1},
        {"max_delayed": 0},
        {"journal_max_bytes": 0},
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
    ],
)
def test_impossible_queues_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        QueueSpec(name=Q, **settings)


@pytest.mark.parametrize("settings", [{"max_crashes": 0}, {"max_delivery_attempts": 0}])
def test_impossible_groups_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        GroupSpec(name=G, **settings)


@pytest.mark.parametrize("settings", [{"max_messages": 0}, {"max_bytes": -5}])
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
