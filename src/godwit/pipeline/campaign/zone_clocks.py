"""The local clocks of every time zone within a horizon, from Python's zone data.

Spark would use the Java runtime's zone data, which is as old as the runtime: it lacks new zones and has old rules for
others. Within a horizon nearly every zone has one offset and the others change once or twice, so the table is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

import msgspec

from godwit.pipeline.campaign.definition import DAY, Horizon

_STEP: Final = timedelta(hours=6)
"""Shorter than the time between any two changes of a zone."""


class ZoneClock(msgspec.Struct, frozen=True):
    """A zone's offsets from UTC in seconds: `offsets[i]` holds until the clock shows `untils[i]`.

    Clock times are seconds since 1970 as the clock shows them. A time that the clock skips has the offset before the
    change, and so has the first of two equal times: both as `datetime` does it.
    """

    zone: str
    offsets: tuple[int, ...]
    untils: tuple[int, ...]


def clocks(horizon: Horizon) -> list[ZoneClock]:
    """Return the clock of every zone, over the horizon and three days around it."""
    start, end = horizon.start.astimezone(UTC) - 3 * DAY, horizon.end.astimezone(UTC) + 3 * DAY
    moments = [start + number * _STEP for number in range((end - start) // _STEP + 1)]
    moments += [end] if moments[-1] < end else []
    return [_clock(zone, moments) for zone in zones()]


@cache
def zones() -> tuple[str, ...]:
    """Return the names of all zones."""
    return tuple(sorted(available_timezones()))


def _clock(zone: str, moments: Sequence[datetime]) -> ZoneClock:
    info = ZoneInfo(zone)
    offsets_seen = [moment.astimezone(info).utcoffset() for moment in moments]
    if offsets_seen.count(offsets_seen[0]) == len(offsets_seen):
        return ZoneClock(zone, (_offset(info, moments[0]),), ())
    offsets, untils = [_offset(info, moments[0])], list[int]()
    for before, after in pairwise(moments):
        if _offset(info, after) != offsets[-1]:
            change = _change(info, before, after)
            later = _offset(info, change)
            untils.append(int(change.timestamp()) + max(offsets[-1], later))
            offsets.append(later)
    return ZoneClock(zone, tuple(offsets), tuple(untils))


def _change(info: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """Return the first second with the later offset."""
    old = _offset(info, before)
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=int((after - before).total_seconds()) // 2)
        if _offset(info, middle) == old:
            before = middle
        else:
            after = middle
    return after


def _offset(info: ZoneInfo, moment: datetime) -> int:
    offset = moment.astimezone(info).utcoffset()
    return int(offset.total_seconds()) if offset else 0
