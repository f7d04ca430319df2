"""The local clocks of every time zone within a horizon, from Python's zone data.

Spark would use the Java runtime's zone data, which is as old as the runtime: it lacks new zones and has old rules for
others. Within a horizon nearly every zone has one offset and the others change once or twice, so the table is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Final
from zoneinfo import available_timezones

import msgspec

from godwit.core.schedule.zones import zone
from godwit.pipeline.campaign.definition import DAY, Horizon

_STEP_SECONDS: Final = 6 * 3_600
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
    start, end = (horizon.start - 3 * DAY).timestamp(), (horizon.end + 3 * DAY).timestamp()
    instants = [*range(int(start), int(end), _STEP_SECONDS), int(end)]
    return [_clock(name, instants) for name in zones()]


@cache
def zones() -> tuple[str, ...]:
    """Return the names of all zones."""
    return tuple(sorted(available_timezones()))


def _clock(name: str, instants: Sequence[int]) -> ZoneClock:
    known = zone(name)
    offsets = [known.offset(instant) for instant in instants]
    pairs = zip(pairwise(instants), pairwise(offsets), strict=True)
    changes = [known.change_between(*stretch) for stretch, (old, new) in pairs if new != old]
    return ZoneClock(
        name,
        (offsets[0], *(change.after for change in changes)),
        tuple(change.at + max(change.before, change.after) for change in changes),
    )
