"""What the journal tells of a message beyond what is recorded, laid over the rows of the state tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from godwit.core.clock import from_ms
from godwit.core.journal.changes import Address, Arrival, Batch, CopyChange, Removal
from godwit.core.journal.statuses import DEAD, Status
from godwit.store.bodies import facts_of, json_text

Row = Mapping[str, Any]
"""A row whose times are aware datetimes and whose JSON is text."""

_PLAIN: Final = (
    "retry_count", "attempt", "failures", "crashes", "worker", "run_ms", "error_kind", "error_fingerprint",
)  # fmt: skip
_TIMES: Final = ("ready_at", "delivered_at", "lease_until", "processed_at", "updated_at", "finished_at")
_WAITING: Final = frozenset({Status.SCHEDULED, Status.PENDING})


def laid_over(
    message_id: str, row: Row | None, copies: Iterable[Row], ahead: Sequence[Batch]
) -> tuple[Row | None, list[Row]]:
    """Return a message's row and those of its copies as they will be once these batches are recorded."""
    message = None if row is None else dict(row)
    known: dict[Address, dict[str, Any]] = {}
    for copy in copies:
        # Open ones come first: a broker that was set back has a copy again that ended before.
        known.setdefault((copy["queue_name"], copy["consumer_group"], copy["publish_seq"]), dict(copy))
    for batch in ahead:
        arrival = batch.arrivals.get(message_id)
        if arrival is not None:
            message = _arrived(arrival)
        for change in batch.copies.values():
            changed = known.setdefault(change.address, _unknown(change))
            _change(changed, change)
            if message is not None:
                _sum_up(message, changed)
        if batch.removal is not None:
            _remove(known, batch.removal)
    return message, list(known.values())


def _arrived(arrival: Arrival) -> dict[str, Any]:
    facts = facts_of(arrival.body)
    return {
        "message_id": arrival.message_id,
        "queue_name": arrival.queue,
        "type": arrival.type,
        "priority": arrival.priority,
        "status": Status.PENDING,
        "retry_count": 0,
        "max_retries": facts.max_retries,
        "created_at": from_ms(facts.created_at_ms or arrival.at),
        "updated_at": from_ms(arrival.at),
        "scheduled_at": _time(arrival.scheduled_at),
        "expires_at": _time(arrival.expires_at),
        "processed_at": None,
    }


def _unknown(copy: CopyChange) -> dict[str, Any]:
    place = {"queue_name": copy.queue, "consumer_group": copy.group, "publish_seq": copy.publish_seq}
    zeros = {"retry_count": 0, "attempt": 0, "failures": 0, "crashes": 0}
    return {**dict.fromkeys((*_PLAIN, *_TIMES, "result")), **place, **zeros, "status": Status.PENDING}


def _change(row: dict[str, Any], copy: CopyChange) -> None:
    if copy.status is not None:
        row["status"] = copy.status
    row |= {name: value for name in _PLAIN if (value := getattr(copy, name)) is not None}
    row |= {name: from_ms(value) for name in _TIMES if (value := getattr(copy, name)) is not None}
    if copy.result is not None:
        row["result"] = json_text(copy.result)
    if row["status"] != Status.PROCESSING:
        row["lease_until"] = None


def _sum_up(message: dict[str, Any], copy: Row) -> None:
    message["retry_count"] = max(message["retry_count"], copy["retry_count"])
    message["updated_at"] = max(message["updated_at"], copy["updated_at"])
    message["processed_at"] = copy["processed_at"] or message["processed_at"]


def _remove(known: Mapping[Address, dict[str, Any]], removal: Removal) -> None:
    for (queue, group, seq), row in known.items():
        there = queue == removal.queue and removal.group in (None, group) and seq in removal.numbers
        if there and row["finished_at"] is None and (removal.dead_too or row["status"] in _WAITING):
            row["status"] = row["status"] if row["status"] in DEAD else Status.CANCELLED
            row["finished_at"], row["lease_until"] = from_ms(removal.at), None


def _time(instant_ms: int | None) -> datetime | None:
    return None if instant_ms is None else from_ms(instant_ms)
