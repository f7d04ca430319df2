"""From rows of the state tables to what `mq.status` returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from godwit.core.journal.statuses import GroupStatus, MessageStatus, Status, least_finished, status_at

Row = Mapping[str, Any]
"""A row whose times are aware datetimes and whose JSON is text."""


def message_status(row: Row | None, copies: Iterable[Row], now: datetime) -> MessageStatus | None:
    """Put a message and its copies together; of a group's copies the newest counts."""
    if row is None:
        return None
    newest: dict[tuple[str, str], Row] = {}
    for copy in copies:
        place = (copy["queue_name"], copy["consumer_group"])
        known = newest.get(place)
        if known is None or _age(copy) > _age(known):
            newest[place] = copy
    groups = tuple(_group(copy, now) for _, copy in sorted(newest.items(), key=lambda item: item[0]))
    return MessageStatus(
        id=row["message_id"],
        queue=row["queue_name"],
        type=row["type"],
        priority=row["priority"],
        status=least_finished(group.status for group in groups) if groups else Status(row["status"]),
        retry_count=row["retry_count"],
        max_retries=row["max_retries"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        scheduled_at=row["scheduled_at"],
        expires_at=row["expires_at"],
        processed_at=row["processed_at"],
        groups=groups,
    )


def _age(copy: Row) -> tuple[bool, int]:
    """Open copies are newer than ended ones."""
    return (copy["finished_at"] is None, copy["publish_seq"])


def _group(copy: Row, now: datetime) -> GroupStatus:
    status = status_at(Status(copy["status"]), copy["ready_at"], now)
    waits_again = status in (Status.PENDING, Status.SCHEDULED) and copy["attempt"] > 0
    return GroupStatus(
        queue=copy["queue_name"],
        group=copy["consumer_group"],
        status=status,
        attempts=copy["attempt"],
        failures=copy["failures"],
        crashes=copy["crashes"],
        retry_count=copy["retry_count"],
        worker=copy["worker"],
        last_attempt=copy["delivered_at"],
        next_retry=copy["ready_at"] if waits_again else None,
        lease_until=copy["lease_until"],
        processed_at=copy["processed_at"],
        run_ms=copy["run_ms"],
        error_kind=copy["error_kind"],
        error_fingerprint=copy["error_fingerprint"],
        result=msgspec.json.decode(copy["result"]) if copy["result"] is not None else None,
    )
