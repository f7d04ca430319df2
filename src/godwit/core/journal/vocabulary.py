"""The journal's words: events, and the layouts of their rows.

Rows are arrays in the event's layout; layouts only ever grow at the end, and a reader takes a missing field as null.
Times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

Row = Sequence[Any]


class Event(StrEnum):
    """Every transition there is."""

    QUEUE_CREATED = "queue_created"
    QUEUE_REMOVED = "queue_removed"
    GROUP_CREATED = "group_created"
    GROUP_REMOVED = "group_removed"
    PURGED = "purged"
    ENQUEUED = "enqueued"
    SCHEDULED = "scheduled"
    DELIVERED = "delivered"
    EXTENDED = "extended"
    ACKED = "acked"
    ACK_REFUSED = "ack_refused"
    NACKED = "nacked"
    POSTPONED = "postponed"
    LEASE_EXPIRED = "lease_expired"
    LEASE_MOVED = "lease_moved"
    HANDED_BACK = "handed_back"
    DEAD_LETTERED = "dead_lettered"
    MESSAGE_EXPIRED = "message_expired"
    CANCELLED = "cancelled"
    REPLAYED = "replayed"
    DISCARDED = "discarded"
    DROPPED = "dropped"
    DUPLICATE = "duplicate"
    PAUSED = "paused"
    DRAINING = "draining"
    RESUMED = "resumed"


_ARRIVAL = (
    "message_id", "publish_seq", "copy", "copies", "type", "priority", "lane", "ordering_key",
    "ready_at", "deliver_at", "expires_at", "size", "schedule_id", "campaign", "replay_of", "body",
)  # fmt: skip
_ATTEMPT = ("message_id", "publish_seq", "delivery_id", "attempt", "failures", "crashes")
_END = (*_ATTEMPT, "run_ms", "type", "lane", "ordering_key", "error_kind", "error_fingerprint")
_MARKS = ("correlation_id", "attributes")
_REMOVAL = ("count", "publish_seq_first", "publish_seq_last")

LAYOUTS: Final[dict[Event, tuple[str, ...]]] = {
    Event.QUEUE_CREATED: ("body",),
    Event.QUEUE_REMOVED: _REMOVAL,
    Event.GROUP_CREATED: ("body",),
    Event.GROUP_REMOVED: _REMOVAL,
    Event.PURGED: _REMOVAL,
    Event.ENQUEUED: (*_ARRIVAL, *_MARKS),
    Event.SCHEDULED: (*_ARRIVAL, *_MARKS),
    Event.DELIVERED: (*_ATTEMPT, "lease_until", "wait_ms", "type", "lane", "ordering_key"),
    Event.EXTENDED: ("message_id", "publish_seq", "delivery_id", "lease_until"),
    Event.ACKED: (*_ATTEMPT, "run_ms", "type", "lane", "ordering_key", "result"),
    Event.ACK_REFUSED: ("delivery_id",),
    Event.NACKED: (*_END, "ready_at"),
    Event.POSTPONED: (*_END, "ready_at"),
    Event.LEASE_EXPIRED: (*_END, "ready_at"),
    Event.LEASE_MOVED: ("message_id", "publish_seq", "delivery_id", "lease_until"),
    Event.HANDED_BACK: (*_END, "ready_at"),
    Event.DEAD_LETTERED: _END,
    Event.MESSAGE_EXPIRED: _END,
    Event.CANCELLED: ("message_id", "publish_seq"),
    Event.REPLAYED: (*_ARRIVAL, "former_seq", *_MARKS),
    Event.DISCARDED: ("message_id", "publish_seq", "target"),
    Event.DROPPED: ("message_id", "publish_seq", "size"),
    Event.DUPLICATE: ("message_id",),
    Event.PAUSED: ("body",),
    Event.DRAINING: ("body",),
    Event.RESUMED: ("body",),
}
RETURN_KINDS: Final = {Event.NACKED: "transient", Event.POSTPONED: "postponed"}
"""The kind of error that a returned delivery has in the journal."""
HEADER: Final = (
    "epoch", "shard", "seq", "at", "event", "queue", "group", "worker", "depth", "actor", "app_version",
)  # fmt: skip
"""The fields that all rows of a chunk share."""
VERSIONED: Final = frozenset({Event.ENQUEUED, Event.SCHEDULED, Event.DELIVERED})
"""Events that say which version of the application published, or pulled."""
HOLDS: Final = frozenset({Event.PAUSED, Event.DRAINING, Event.RESUMED})
"""Events that tell of a queue or a group held back or let go: they move no copy."""
