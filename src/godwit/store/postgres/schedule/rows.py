"""Schedules and firings as rows of PostgreSQL."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from godwit.core.clock import milliseconds
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
        rule.starts_at,
        rule.ends_at,
        rule.max_occurrences,
        milliseconds(rule.jitter),
        rule.misfire,
        schedule.status,
        schedule.next_fire_at,
        schedule.last_fire_at,
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
            starts_at=row["starts_at"],
            ends_at=row["ends_at"],
            max_occurrences=row["max_occurrences"],
            jitter=timedelta(milliseconds=row["jitter_ms"]),
            misfire=Misfire(row["misfire"]),
        ),
        status=ScheduleStatus(row["status"]),
        next_fire_at=row["next_fire_at"],
        last_fire_at=row["last_fire_at"],
        occurrences=row["occurrences"],
        skipped=row["skipped"],
        version=row["version"],
        problem=row["problem"],
    )


def firing_of(row: Any) -> Firing:
    """Return a firing."""
    return Firing(
        id=row["id"],
        queue=row["queue_name"],
        message_id=row["message_id"],
        fire_at=row["fire_at"],
        deliver_at=row["deliver_at"],
        message=row["envelope"] or b"",
        schedule_id=row["schedule_id"],
        campaign=row["campaign"],
        key=row["key"],
        status=FiringStatus(row["status"]),
        queued_at=row["queued_at"],
        published_at=row["published_at"],
        tries=row["tries"],
        error=row["error"],
    )


def sent_of(row: Any) -> Sent:
    """Return where a firing's message may be."""
    return Sent(row["id"], row["queue_name"], row["message_id"])
