"""Schedules and firings as rows of SQLite: instants in milliseconds, ids as text."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from godwit.core.clock import from_ms, milliseconds, to_ms
from godwit.core.schedule.schedules import Firing, FiringStatus, Misfire, Rule, Schedule, ScheduleStatus
from godwit.store.schedules import Sent


def values_of(schedule: Schedule) -> tuple[Any, ...]:
    """Return a rule's columns in the order of `add` and `replace`."""
    rule = schedule.rule
    return (
        schedule.id,
        schedule.queue,
        schedule.message,
        rule.cron,
        rule.timezone,
        _ms(rule.starts_at),
        _ms(rule.ends_at),
        rule.max_occurrences,
        milliseconds(rule.jitter),
        rule.misfire,
        schedule.status,
        _ms(schedule.next_fire_at),
        _ms(schedule.last_fire_at),
        schedule.occurrences,
        schedule.skipped,
        schedule.version,
    )


def schedule_of(row: Any) -> Schedule:
    """Return a rule."""
    return Schedule(
        id=row["id"],
        queue=row["queue_name"],
        message=row["envelope"],
        rule=Rule(
            cron=row["cron"],
            timezone=row["timezone"],
            starts_at=_instant(row["starts_at"]),
            ends_at=_instant(row["ends_at"]),
            max_occurrences=row["max_occurrences"],
            jitter=timedelta(milliseconds=row["jitter_ms"]),
            misfire=Misfire(row["misfire"]),
        ),
        status=ScheduleStatus(row["status"]),
        next_fire_at=_instant(row["next_fire_at"]),
        last_fire_at=_instant(row["last_fire_at"]),
        occurrences=row["occurrences"],
        skipped=row["skipped"],
        version=row["version"],
        problem=row["problem"],
    )


def firing_of(row: Any) -> Firing:
    """Return a firing."""
    return Firing(
        id=UUID(row["id"]),
        queue=row["queue_name"],
        message_id=row["message_id"],
        fire_at=from_ms(row["fire_at"]),
        deliver_at=from_ms(row["deliver_at"]),
        message=row["envelope"] or b"",
        schedule_id=row["schedule_id"],
        campaign=row["campaign"],
        key=row["key"],
        status=FiringStatus(row["status"]),
        queued_at=_instant(row["queued_at"]),
        published_at=_instant(row["published_at"]),
        tries=row["tries"],
        error=row["error"],
    )


def sent_of(row: Any) -> Sent:
    """Return where a firing's message may be."""
    return Sent(UUID(row["id"]), row["queue_name"], row["message_id"])


def firing_values(firing: Firing) -> tuple[Any, ...]:
    """Return a firing's columns in the order of `put` and `load`."""
    return (
        str(firing.id),
        firing.schedule_id,
        firing.campaign,
        firing.key,
        firing.queue,
        firing.message_id,
        to_ms(firing.fire_at),
        to_ms(firing.deliver_at),
        firing.message,
    )


def _instant(instant_ms: int | None) -> datetime | None:
    return None if instant_ms is None else from_ms(instant_ms)


def _ms(instant: datetime | None) -> int | None:
    return None if instant is None else to_ms(instant)
