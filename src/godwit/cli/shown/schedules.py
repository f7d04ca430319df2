"""Schedules and firings, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from rich.console import Console
from rich.table import Table

from godwit.core.clock import milliseconds
from godwit.core.schedule.schedules import Firing, Schedule
from godwit.store.schedules import Lateness


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as JSON values, with its message decoded."""
    document: dict[str, Any] = msgspec.to_builtins(schedule, builtin_types=(datetime,))
    rule = document.pop("rule")
    rule["jitter_ms"] = milliseconds(schedule.rule.jitter)
    del rule["jitter"]
    return {**document, **rule, "message": msgspec.json.decode(schedule.message)}


def firing_document(firing: Firing) -> dict[str, Any]:
    """Return a firing as JSON values, without its message."""
    return {
        "id": firing.message_id,
        "queue": firing.queue,
        "deliver_at": firing.deliver_at,
        "status": firing.status,
        "schedule_id": firing.schedule_id,
        "campaign": firing.campaign,
        "key": firing.key,
        "published_at": firing.published_at,
        "tries": firing.tries,
        "error": firing.error,
    }


def schedule_table(schedules: Iterable[Schedule], firings: Iterable[Firing]) -> Table:
    """Return schedules and firings as a table."""
    table = Table(box=None, pad_edge=False)
    for name in ("id", "queue", "when", "zone", "next", "status", "fired"):
        table.add_column(name, overflow="fold")
    for schedule in schedules:
        table.add_row(
            schedule.id,
            schedule.queue,
            schedule.rule.cron,
            schedule.rule.timezone,
            _at(schedule.next_fire_at),
            schedule.status,
            f"{schedule.occurrences:,}",
        )
    for firing in firings:
        source = firing.campaign or firing.schedule_id or "once"
        table.add_row(firing.message_id, firing.queue, source, "UTC", _at(firing.deliver_at), firing.status, "")
    return table


def show_schedule(console: Console, schedule: Schedule, coming: Sequence[datetime], lateness: Lateness) -> None:
    """Print everything about one schedule."""
    rule = schedule.rule
    lines = {
        "id": schedule.id,
        "queue": schedule.queue,
        "cron": f"{rule.cron} ({rule.timezone})",
        "status": f"{schedule.status}, version {schedule.version}",
        "problem": schedule.problem or "",
        "from": _at(rule.starts_at),
        "until": _at(rule.ends_at),
        "at most": "" if rule.max_occurrences is None else f"{rule.max_occurrences:,} times",
        "jitter": "" if not rule.jitter else str(rule.jitter),
        "misfire": rule.misfire,
        "fired": f"{schedule.occurrences:,} planned, {lateness.fired:,} published, {schedule.skipped:,} skipped",
        "late": "" if lateness.p50_ms is None else f"p50 {lateness.p50_ms:,} ms, p99 {lateness.p99_ms:,} ms",
        "next": ", ".join(local_times(coming, rule.timezone)),
    }
    for name, value in lines.items():
        if value:
            console.print(f"{name:8} {value}")


def local_times(coming: Iterable[datetime], zone: str) -> list[str]:
    """Return instants in the local time of a zone."""
    local_zone = ZoneInfo(zone)
    return [moment.astimezone(local_zone).isoformat(sep=" ") for moment in coming]


def _at(instant: datetime | None) -> str:
    return "" if instant is None else instant.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
