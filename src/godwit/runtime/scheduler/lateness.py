"""How well schedules are kept: planned times beside actual ones, and what was missed."""

from __future__ import annotations

from datetime import datetime

import msgspec

from godwit.core.schedule.schedules import Schedule
from godwit.store.schedules import Lateness, Schedules


class ScheduleAnalytics(msgspec.Struct, frozen=True, kw_only=True):
    """How well a schedule, a campaign or all of them are kept; `skipped` times passed while no scheduler ran."""

    lateness: Lateness
    skipped: int | None = None
    occurrences: int | None = None


async def analysed(
    schedules: Schedules, schedule: Schedule | None, *, campaign: str | None, since: datetime | None
) -> ScheduleAnalytics:
    """Compare planned and actual times of a schedule's firings, of a campaign's, or of all."""
    schedule_id = None if schedule is None else schedule.id
    return ScheduleAnalytics(
        lateness=await schedules.lateness(schedule_id=schedule_id, campaign=campaign, since=since),
        skipped=None if schedule is None else schedule.skipped,
        occurrences=None if schedule is None else schedule.occurrences,
    )
