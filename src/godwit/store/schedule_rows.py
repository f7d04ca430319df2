"""Schedules and firings as rows of a database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from godwit.core.clock import milliseconds
from godwit.core.schedule.schedules import Firing, FiringStatus, Misfire, Rule, Schedule, ScheduleStatus
from godwit.store.schedules import Sent


def as_it_is(value: Any) -> Any:
    """Return a value that the driver gives and takes as it is."""
    return value


class ScheduleRows:
    """Reads and writes rows; the database says how it keeps instants and ids, where its driver does not."""

    def __init__(
        self,
        *,
        instant: Callable[[Any], Any] = as_it_is,
        stored: Callable[[datetime | None], Any] = as_it_is,
        id_of: Callable[[Any], UUID] = as_it_is,
    ) -> None:
        self._instant, self._stored, self._id = instant, stored, id_of

    def values_of(self, schedule: Schedule) -> tuple[Any, ...]:
        """Return a rule's columns in the order of `add` and `replace`."""
        rule = schedule.rule
        return (
            schedule.id,
            schedule.queue,
            schedule.message,
            rule.cron,
            rule.timezone,
            self._stored(rule.starts_at),
            self._stored(rule.ends_at),
            rule.max_occurrences,
            milliseconds(rule.jitter),
            rule.misfire,
            schedule.status,
            self._stored(schedule.next_fire_at),
            self._stored(schedule.last_fire_at),
            schedule.occurrences,
            schedule.skipped,
            schedule.version,
        )

    def schedule_of(self, row: Any) -> Schedule:
        """Return a rule."""
        return Schedule(
            id=row["id"],
            queue=row["queue_name"],
            message=row["envelope"],
            rule=Rule(
                cron=row["cron"],
                timezone=row["timezone"],
                starts_at=self._instant(row["starts_at"]),
                ends_at=self._instant(row["ends_at"]),
                max_occurrences=row["max_occurrences"],
                jitter=timedelta(milliseconds=row["jitter_ms"]),
                misfire=Misfire(row["misfire"]),
            ),
            status=ScheduleStatus(row["status"]),
            next_fire_at=self._instant(row["next_fire_at"]),
            last_fire_at=self._instant(row["last_fire_at"]),
            occurrences=row["occurrences"],
            skipped=row["skipped"],
            version=row["version"],
            problem=row["problem"],
        )

    def firing_of(self, row: Any) -> Firing:
        """Return a firing."""
        return Firing(
            id=self._id(row["id"]),
            queue=row["queue_name"],
            message_id=row["message_id"],
            fire_at=self._instant(row["fire_at"]),
            deliver_at=self._instant(row["deliver_at"]),
            message=row["envelope"] or b"",
            schedule_id=row["schedule_id"],
            campaign=row["campaign"],
            key=row["key"],
            status=FiringStatus(row["status"]),
            queued_at=self._instant(row["queued_at"]),
            published_at=self._instant(row["published_at"]),
            tries=row["tries"],
            error=row["error"],
        )

    def sent_of(self, row: Any) -> Sent:
        """Return where a firing's message may be."""
        return Sent(self._id(row["id"]), row["queue_name"], row["message_id"])
