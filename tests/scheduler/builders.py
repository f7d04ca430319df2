"""Schedules and firings for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from godwit.core.clock import from_ms
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.schedule.schedules import Firing, Rule, Schedule, campaign_id, firing_id

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
LEASE = timedelta(seconds=60)
QUEUE = "mail"


def body(payload: Any = None) -> bytes:
    return seal(Message(id="template", queue=QUEUE, payload=payload, created_at=NOON)).body


def rule(id: str = "daily", **changes: Any) -> Schedule:
    return Schedule(
        **{"id": id, "queue": QUEUE, "message": body(), "rule": Rule(cron="0 * * * *"), "next_fire_at": NOON, **changes}
    )


def firing(key: str, deliver_at: datetime = NOON, *, campaign: str = "spring") -> Firing:
    known = campaign_id(campaign, key)
    return Firing(
        id=known,
        queue=QUEUE,
        message_id=str(known),
        fire_at=deliver_at,
        deliver_at=deliver_at,
        message=body(key),
        campaign=campaign,
        key=key,
    )


def firing_of(schedule: Schedule, fire_ms: int) -> Firing:
    known = firing_id(schedule.id, schedule.version, fire_ms)
    return Firing(
        id=known,
        queue=schedule.queue,
        message_id=str(known),
        fire_at=from_ms(fire_ms),
        deliver_at=from_ms(fire_ms),
        message=schedule.message,
        schedule_id=schedule.id,
    )
