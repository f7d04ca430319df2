"""Queues, groups and messages as they may occur: numbers small enough to run into every limit, and extremes.

Some names are as long as names can be, and some values such as no user would choose: times before 1970 and without end,
of no length and below nothing.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as st

from godwit.brokers.contract import MAX_LEASE
from godwit.core.clock import milliseconds
from godwit.core.failures.retry import Backoff
from godwit.core.limits import bounded_ms
from godwit.core.messages.checks import MAX_ORDERING_KEY_BYTES
from godwit.core.messages.envelope import Envelope
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import FlowControl, GroupSpec, Overflow, QueueSpec

SOURCES = ("a", "b" * 255)
DEAD = "d"
QUEUES = (*SOURCES, DEAD)
GROUPS = ("g", "h" * 255)
WORKERS = (*("w1", "w2") * 8, "w" * 255, "w" * 256, "\ud800")
LEASES_MS = (300, 700, 5_000)
SHORT_MS = (100, 300, 700, 1_500)
ENDLESS = sys.maxsize
FAR_MS = 1 << 60
"""Beyond all limits, on either side."""
LONGEST_LEASE_MS = milliseconds(MAX_LEASE)
LEASES_DRAWN = (*LEASES_MS * 6, LONGEST_LEASE_MS, LONGEST_LEASE_MS + 1, FAR_MS, 0, -1, -FAR_MS)
DELAYS_MS = (*SHORT_MS * 3, FAR_MS, -1, -FAR_MS)
KEYS = (None, "k", "l", "\0" + "\U0010ffff" * (MAX_ORDERING_KEY_BYTES // 4 - 1))
UNITS = st.integers(0, 1 << 16)
"""A number that picks one of whatever there is."""


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def often(value: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Return mostly `value`."""
    return st.sampled_from((value,) * (2 * len(others)) + others)


GROUP_SETTINGS = st.fixed_dictionaries(
    {
        "flow_control": often(
            FlowControl(), FlowControl(max_messages=2), FlowControl(max_bytes=50), FlowControl(max_messages=ENDLESS)
        ),
        "max_crashes": st.sampled_from((None, 1, 2, 3, ENDLESS)),
        "max_delivery_attempts": often(None, 2, 3, ENDLESS),
        "backoff": often(None, Backoff(minimum=ms(200), maximum=ms(500)), Backoff(maximum=timedelta.max)),
        "overflow": often(Overflow.REFUSE, Overflow.DROP),
        "forgive_outages": often(True, False),
    }
)
QUEUE_SETTINGS = st.fixed_dictionaries(
    {
        "max_size": often(None, 3, 6, ENDLESS),
        "max_bytes": often(None, 100, ENDLESS),
        "max_delayed": often(1_000_000, 2, ENDLESS),
        "ttl": often(None, ms(1_500), timedelta.max),
        "dedup_window": often(ms(600_000), ms(0), ms(500), timedelta.max),
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
    created_ms: int = 0

    def envelope(self, now_ms: int) -> Envelope:
        """Return it as `seal` would: its times, which count from now, inside the limits."""
        due = None if self.due_ms is None else bounded_ms(now_ms + self.due_ms)
        expires = None if self.expires_ms is None else bounded_ms(now_ms + self.expires_ms)
        created = bounded_ms(now_ms + self.created_ms)
        group = GroupName(self.group) if self.group else None
        name = MessageId(f"m{self.id}".ljust(255 if self.id % 20 == 7 else 0, "~"))
        kind = "t" * (100 if self.id % 20 == 8 else 1)
        body = b"x" * self.size
        queue = QueueName(self.queue)
        marks: dict[str, Any] = (
            {} if self.id % 3 else {"correlation_id": f"c{self.id}", "journal_attributes": '{"tenant":"t"}'}
        )
        return Envelope(
            name, queue, body, self.size, created, kind, self.priority, self.key, group, due, expires, **marks
        )


DRAFTS = st.builds(
    Draft,
    id=st.integers(0, 60),
    queue=st.sampled_from(QUEUES),
    priority=st.sampled_from((50, 0, 20, 21, 60, 61, 80, 81, 100)),
    key=st.sampled_from(KEYS),
    group=often(None, *GROUPS),
    due_ms=often(None, -100, *SHORT_MS, FAR_MS, -FAR_MS),
    expires_ms=often(None, -100, *SHORT_MS, FAR_MS, -FAR_MS),
    size=st.sampled_from((10, 20, 40, 0)),
    created_ms=st.sampled_from((*(0,) * 20, FAR_MS, -FAR_MS)),
)
