"""Schedules and firings as rows of SQLite: instants in milliseconds, ids as text."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from godwit.core.clock import from_ms, to_ms
from godwit.core.schedule.schedules import Firing
from godwit.store.schedule_rows import ScheduleRows


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


def instant_of(instant_ms: int | None) -> datetime | None:
    """Return an instant, of its milliseconds."""
    return None if instant_ms is None else from_ms(instant_ms)


def ms_of(instant: datetime | None) -> int | None:
    """Return the milliseconds of an instant."""
    return None if instant is None else to_ms(instant)


ROWS: Final = ScheduleRows(instant=instant_of, stored=ms_of, id_of=UUID)
