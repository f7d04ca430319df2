"""The lifecycle of a copy as an audit follows it: which events are steps, and which state each step leads to.

A copy is unborn until it arrives; then it is waiting, leased or dead until it has ended.
"""

from __future__ import annotations

from typing import Final

from godwit.core.journal.vocabulary import Event

ARRIVALS: Final = (Event.ENQUEUED, Event.SCHEDULED, Event.REPLAYED)
REMOVALS: Final = (Event.PURGED, Event.GROUP_REMOVED, Event.QUEUE_REMOVED)
STEPS: Final[dict[str, tuple[Event, ...]]] = {
    "arrive": ARRIVALS,
    "deliver": (Event.DELIVERED,),
    "renew": (Event.EXTENDED, Event.LEASE_MOVED),
    "return": (Event.NACKED, Event.POSTPONED, Event.LEASE_EXPIRED, Event.HANDED_BACK),
    "die": (Event.DEAD_LETTERED, Event.MESSAGE_EXPIRED),
    "ack": (Event.ACKED,),
    "cancel": (Event.CANCELLED,),
    "discard": (Event.DISCARDED,),
    "purge": (Event.PURGED,),
    "remove": (Event.GROUP_REMOVED, Event.QUEUE_REMOVED),
}
STATES: Final = ("unborn", "waiting", "leased", "dead", "ended")
AFTER: Final = {
    "arrive": "waiting", "return": "waiting", "deliver": "leased", "renew": "leased", "die": "dead",
    "ack": "ended", "cancel": "ended", "discard": "ended", "purge": "ended", "remove": "ended", "replay": "ended",
}  # fmt: skip
MAY: Final = {
    "arrive": ("unborn",), "deliver": ("waiting",), "renew": ("leased",), "return": ("leased",),
    "die": ("waiting", "leased"), "ack": ("leased",), "cancel": ("waiting",), "discard": ("dead",), "replay": ("dead",),
}  # fmt: skip
"""From which states a step may be taken. A removal takes whatever is there, a purge only what waits."""

COLUMNS: Final = (
    "shard", "seq", "at", "event", "queue", "group", "publish_seq", "message_id", "ready_at", "deliver_at",
    "lease_until", "wait_ms", "lane", "ordering_key", "former_seq",
)  # fmt: skip
"""The journal columns that an audit reads."""
