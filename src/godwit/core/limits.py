"""Limits of instants, durations and counts: one place, the same for every broker and store.

Whatever an application says is brought inside them before a broker or a store sees it, so that no sum of two of them
leaves what a datetime, a 64-bit integer, a double of Redis or an INTEGER column can hold.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Final

from godwit.core.errors import InvalidSetting
from godwit.core.logs import get_logger

EARLIEST_MS: Final = 1
"""The first millisecond of 1970. In a broker's own records 0 means "never", so an earlier instant becomes this one."""
LATEST_MS: Final = 253_370_764_800_000
"""The beginning of the year 9999: a year is left for zones and for what is added to an instant."""
LONGEST: Final = timedelta(days=36_525)
"""A hundred years, the longest delay, window or time to live."""
LARGEST_COUNT: Final = 2**31 - 1
"""The largest count: attempts, sizes, priorities of queues. More means "without end"."""

log = get_logger(__name__)


def bounded_ms(instant_ms: int) -> int:
    """Return an instant in milliseconds, moved inside the limits."""
    return EARLIEST_MS if instant_ms < EARLIEST_MS else min(instant_ms, LATEST_MS)


def bounded(duration: timedelta) -> timedelta:
    """Return a duration, moved inside 0 and the longest."""
    return timedelta(0) if duration < timedelta(0) else min(duration, LONGEST)


def as_duration(setting: str, value: timedelta | float) -> timedelta:
    """Return what a caller gave as a duration: a number is seconds, a negative one is zero and logged as a warning."""
    if isinstance(value, timedelta):
        duration = value
    elif isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidSetting(setting, value, "a timedelta, or a number of seconds")
    else:
        duration = timedelta(seconds=max(min(value, LONGEST.total_seconds()), -1))
    if duration < timedelta(0):
        log.warning("a negative duration was taken as zero", setting=setting, given=value)
    return bounded(duration)
