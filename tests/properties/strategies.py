"""Queues, groups and messages as they may occur, in numbers small enough to run into every limit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as st

from godwit.core.envelope import Envelope
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import FlowControl, GroupSpec, Overflow, QueueSpec
from godwit.core.retry import Backoff

SOURCES = ("a", "b")
DEAD = "d"
QUEUES = (*SOURCES, DEAD)
GROUPS = ("g", "h")
WORKERS = ("w1", "w2")
LEASES_MS = (300, 700, 5_000)
SHORT_MS = (100, 300, 700, 1_500)
UNITS = st.integers(0, 1 << 16)
"""A number that picks one of whatever there is."""


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def often(value: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Return mostly `value`."""
    return st.sampled_from((value,) * (2 * len(others)) + others)


GROUP_SETTINGS = st.fixed_dictionaries(
    {
        "flow_control": often(FlowControl(), FlowControl(max_messages=2), FlowControl(max_bytes=50)),
        "max_crashes": st.sampled_from((None, 1, 2, 3)),
        "max_delivery_attempts": often(None, 2, 3),
        "backoff": often(None, Backoff(minimum=ms(200), maximum=ms(500))),
        "overflow": often(Overflow.REFUSE, Overflow.DROP),
        "forgive_outages": often(True, False),
    }
)
QUEUE_SETTINGS = st.fixed_dictionaries(
    {
        "max_size": often(None, 3, 6),
        "max_bytes": often(None, 100),
        "max_delayed": often(1_000_000, 2),
        "ttl": often(None, ms(1_500)),
        "dedup_window": often(ms(600_000), ms(0), ms(500)),
    }
)
LAYOUTS = st.tuples(st.sampled_from((1, 4)), st.booleans(), st.booleans())
"""What cannot change while a queue exists: the number of lanes, and which groups keep the order of keys."""


def queue_spec(name: str, lanes: int, settings: dict[str, Any], *, feeds: bool) -> QueueSpec:
    return QueueSpec(
        name=QueueName(name),
        lanes=lanes,
        dead_letter_queue=QueueName(DEAD) if feeds and name != DEAD else None,
        **settings,
    )


def group_spec(name: str, settings: dict[str, Any], *, ordered: bool) -> GroupSpec:
    return GroupSpec(name=GroupName(name), message_ordering=ordered, **settings)


class Draft(NamedTuple):
    """A message before it has a time."""

    id: int
    queue: str
    priority: int
    key: str | None
    group: str | None
    due_ms: int | None
    expires_ms: int | None
    size: int

    def envelope(self, now_ms: int) -> Envelope:
        due = None if self.due_ms is None else now_ms + self.due_ms
        expires = None if self.expires_ms is None else now_ms + self.expires_ms
        group = GroupName(self.group) if self.group else None
        name = MessageId(f"m{self.id}")
        body = b"x" * self.size
        queue = QueueName(self.queue)
        return Envelope(name, queue, body, self.size, now_ms, "t", self.priority, self.key, group, due, expires)


DRAFTS = st.builds(
    Draft,
    id=st.integers(0, 60),
    queue=st.sampled_from(QUEUES),
    priority=st.sampled_from((50, 0, 20, 21, 60, 61, 80, 81, 100)),
    key=st.sampled_from((None, "k", "l")),
    group=often(None, *GROUPS),
    due_ms=often(None, -100, *SHORT_MS),
    expires_ms=often(None, -100, *SHORT_MS),
    size=st.sampled_from((10, 20, 40)),
)
