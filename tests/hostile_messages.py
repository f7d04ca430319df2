"""Fields of messages that no handler could read back, and times in zones that cannot be used."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any

from godwit.core.messages.message import MessageMetadata, Routing, Scheduling

NAIVE = datetime(2026, 1, 1, 12)


def zoned(offset: object) -> datetime:
    """Return an instant in a zone whose offset is the one given, or raises it."""

    class Zone(tzinfo):
        def utcoffset(self, _: datetime | None, /) -> Any:
            if isinstance(offset, Exception):
                raise offset
            return offset

        def dst(self, _: datetime | None, /) -> None:
            return None

        def tzname(self, _: datetime | None, /) -> str:
            return "nowhere"

    return datetime(2026, 1, 1, 12, tzinfo=Zone())


LOOSE: Any = object()
WRONG: dict[str, dict[str, Any]] = {
    "attributes": {"attributes": None},
    "attributes of pairs": {"attributes": [("a", "b")]},
    "kind": {"kind": "nonsense"},
    "kind that cannot be hashed": {"kind": [], "priority": 1},
    "metadata": {"metadata": None},
    "metadata of a dict": {"metadata": {"source": "x"}},
    "metadata of no text": {"metadata": MessageMetadata(correlation_id=LOOSE)},
    "metadata of a number": {"metadata": MessageMetadata(version=LOOSE)},
    "headers": {"metadata": MessageMetadata(headers=LOOSE)},
    "routing": {"routing": None},
    "target queue": {"routing": Routing(target_queue=LOOSE)},
    "target queue of nothing": {"routing": Routing(target_queue=[])},  # type: ignore[arg-type]
    "group": {"routing": Routing(consumer_group=LOOSE)},
    "scheduling": {"scheduling": 5},
    "cron": {"scheduling": Scheduling(cron=LOOSE)},
    "schedule id": {"scheduling": Scheduling(schedule_id=LOOSE)},
    "occurrences": {"scheduling": Scheduling(max_occurrences=2.5)},  # type: ignore[arg-type]
    "start without a zone": {"scheduling": Scheduling(starts_at=NAIVE)},
    "retry policy": {"retry_policy": {"max_attempts": 0}},
    "replay of a number": {"replay_of": 5},
    "replay of a long id": {"replay_of": "x" * 256},
    "ordering key": {"ordering_key": LOOSE},
    "ordering key with a surrogate": {"ordering_key": "\ud800"},
    "attribute with a surrogate": {"attributes": {"a": "\ud800"}},
    "key with a surrogate": {"payload": {"\ud800": 1}},
    "type with a surrogate": {"type": "\ud800"},
    "type that cannot be hashed": {"type": []},
    "id with a surrogate": {"id": "\ud800"},
    "queue that cannot be hashed": {"queue": ["orders"]},
    "source with a surrogate": {"metadata": MessageMetadata(source="\ud800")},
}
