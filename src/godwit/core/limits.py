"""Limits of instants, durations and counts: one place, the same for every broker and store.

Whatever an application says is brought inside them before a broker or a store sees it, so that no sum of two of them
leaves what a datetime, a 64-bit integer, a double of Redis or an INTEGER column can hold.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, TypeVar

from godwit.core.clock import from_ms, to_ms
from godwit.core.errors import InvalidSetting

EARLIEST_MS: Final = 1
"""The first millisecond of 1970. In a broker's own records 0 means "never", so an earlier instant becomes this one."""
LATEST_MS: Final = 250_215_004_800_000
"""The last day of the year 9898: with the longest duration added it is the year 9999, and a year is left for zones."""
LONGEST: Final = timedelta(days=36_525)
"""A hundred years, the longest delay, window or time to live."""
LARGEST_COUNT: Final = 2**31 - 1
"""The largest count: attempts, messages, milliseconds of a run, priorities of queues. More means "without end"."""
MOST_BYTES: Final = 2**50
"""The largest size of a queue or journal, a petabyte."""

E = TypeVar("E", bound=Enum)


def bounded_ms(instant_ms: int) -> int:
    """Return an instant in milliseconds, moved inside the limits."""
    return EARLIEST_MS if instant_ms < EARLIEST_MS else min(instant_ms, LATEST_MS)


def bounded_instant(instant: datetime) -> datetime:
    """Return an aware datetime, moved inside the limits."""
    instant_ms = to_ms(instant)
    inside_ms = bounded_ms(instant_ms)
    return instant if inside_ms == instant_ms else from_ms(inside_ms)


def bounded(duration: timedelta) -> timedelta:
    """Return a duration, moved inside 0 and the longest."""
    return timedelta(0) if duration < timedelta(0) else min(duration, LONGEST)


def as_duration(setting: str, value: timedelta | float) -> timedelta:
    """Return what a caller gave as a duration: a number is seconds, a negative one is zero and logged as a warning."""
    duration = _as_timedelta(setting, value)
    if duration < timedelta(0):
        from godwit.core.logs import get_logger  # a tenth of the time that `import godwit` takes

        get_logger(__name__).warning("a negative duration was taken as zero", setting=setting, given=value)
    return bounded(duration)


def as_time_setting(setting: str, value: timedelta | float) -> timedelta:
    """Return a duration of a setting, which was written down and not computed: a negative one is refused."""
    duration = _as_timedelta(setting, value)
    if duration < timedelta(0):
        raise InvalidSetting(setting, value, "0 or more")
    return bounded(duration)


def _as_timedelta(setting: str, value: timedelta | float) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidSetting(setting, value, "a timedelta, or a number of seconds")
    return timedelta(seconds=max(min(value, LONGEST.total_seconds()), -1))


def as_count(setting: str, value: Any, *, least: int = 1, most: int = LARGEST_COUNT) -> int:
    """Return what a caller gave as a whole number; more than `most` means "without end" and becomes `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidSetting(setting, value, f"a whole number, {least:,} or more")
    return min(int(value), most)


def as_whole(setting: str, value: Any) -> int:
    """Return what a caller gave as a whole number, moved inside the limits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidSetting(setting, value, "a whole number")
    return max(-LARGEST_COUNT, min(int(value), LARGEST_COUNT))


def as_limit(setting: str, value: Any, *, most: int = LARGEST_COUNT) -> int | None:
    """Return a limit of 1 or more, or none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidSetting(setting, value, "1 or more, or none")
    return min(int(value), most)


def as_number(setting: str, value: Any, least: float, most: float, allowed: str) -> float:
    """Return a finite number between two others."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidSetting(setting, value, allowed)
    return float(value)


def as_flag(setting: str, value: Any) -> bool:
    """Return a truth value; words and numbers are none."""
    if not isinstance(value, bool):
        raise InvalidSetting(setting, value, "True or False")
    return value


def as_choice(setting: str, value: Any, choices: type[E]) -> E:
    """Return one of a setting's words."""
    if isinstance(value, choices):
        return value
    try:
        return choices(value)
    except (ValueError, TypeError):
        words = ", ".join(repr(choice.value) for choice in choices)
        raise InvalidSetting(setting, value, f"one of {words}") from None
