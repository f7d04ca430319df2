"""Cron expressions: five fields, or six with seconds first, read once and asked for the next local time they match.

Local times are whole seconds since 1970 on a clock without a zone; `schedule_times` puts them into one.
"""

from __future__ import annotations

import calendar
from bisect import bisect_left
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Final

from godwit.core.errors import InvalidSchedule

DAY_SECONDS: Final = 86_400
LONGEST_EXPRESSION: Final = 255
NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_FIVE: Final = 5
_SIX: Final = 6
_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FEBRUARY: Final = 2
_LONGEST_FEBRUARY: Final = 29
_SEARCH_YEARS: Final = 50
"""A Sunday that is also a 29 February comes after at most 40 years."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()

    def values(self, text: str) -> frozenset[int]:
        """Return every number a list of numbers, names, ranges and steps stands for."""
        return frozenset(value for part in text.split(",") for value in self._part(part))

    def _part(self, text: str) -> range:
        span, slash, step = text.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            low, high = self.least, self.most
        else:
            low = self.number(first)
            high = self.number(last) if dash else (self.most if slash else low)
        if high < low:
            raise _Problem(f"the {self.name} {text!r} runs backwards", "Write the smaller end first.")
        if slash and not (step.isascii() and step.isdigit() and int(step)):
            raise _Problem(f"the {self.name} {text!r} has no usable step", "Write a step such as */15.")
        return range(low, high + 1, int(step) if slash else 1)

    def number(self, text: str) -> int:
        """Return one number, or what a name stands for."""
        if text in self.names:
            return self.names.index(text) + self.least
        if not (text.isascii() and text.isdigit() and self.least <= int(text) <= self.most):
            names = f", or {self.names[0]} to {self.names[-1]}" if self.names else ""
            raise _Problem(f"the {self.name} is {text!r}", f"Use {self.least} to {self.most}{names}.")
        return int(text)


_SECOND: Final = _Field("second", 0, 59)
_MINUTE: Final = _Field("minute", 0, 59)
_HOUR: Final = _Field("hour", 0, 23)
_DAY: Final = _Field("day of month", 1, 31)
_MONTH: Final = _Field("month", 1, 12, _MONTHS)
_WEEKDAY: Final = _Field("day of week", 0, 7, _WEEKDAYS)


class _Problem(Exception):
    """What is wrong with a part of an expression, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """An expression as sets; `wild` says that it follows the wall clock through a change of the zone's offset."""

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    last_day: bool
    months: frozenset[int]
    weekdays: frozenset[int]
    nth_weekdays: frozenset[tuple[int, int]]
    last_weekdays: frozenset[int]
    both_days: bool
    wild: bool

    def next_local(self, at: int) -> int | None:
        """Return the first local second at or after `at` that matches; None when there is none in fifty years."""
        day, second = divmod(at, DAY_SECONDS)
        if self._is_day(date.fromordinal(day + _EPOCH_ORDINAL)):
            found = self._next_in_day(second)
            if found is not None:
                return day * DAY_SECONDS + found
        later = self._next_day(day + 1)
        if later is None:
            return None
        return later * DAY_SECONDS + self.hours[0] * 3_600 + self.minutes[0] * 60 + self.seconds[0]

    def _next_in_day(self, second: int) -> int | None:
        hour, rest = divmod(second, 3_600)
        minute, second = divmod(rest, 60)
        at = bisect_left(self.hours, hour)
        if at == len(self.hours):
            return None
        if self.hours[at] == hour:
            found = self._next_in_hour(minute, second)
            if found is not None:
                return hour * 3_600 + found
            at += 1
        if at == len(self.hours):
            return None
        return self.hours[at] * 3_600 + self.minutes[0] * 60 + self.seconds[0]

    def _next_in_hour(self, minute: int, second: int) -> int | None:
        at = bisect_left(self.minutes, minute)
        if at < len(self.minutes) and self.minutes[at] == minute:
            place = bisect_left(self.seconds, second)
            if place < len(self.seconds):
                return minute * 60 + self.seconds[place]
            at += 1
        return self.minutes[at] * 60 + self.seconds[0] if at < len(self.minutes) else None

    def _next_day(self, day: int) -> int | None:
        found = date.fromordinal(day + _EPOCH_ORDINAL)
        last_year = found.year + _SEARCH_YEARS
        while found.year <= last_year:
            if found.month not in self.months:
                found = _first_of_next_month(found)
            elif self._is_day(found):
                return found.toordinal() - _EPOCH_ORDINAL
            else:
                found = date.fromordinal(found.toordinal() + 1)
        return None

    def _is_day(self, found: date) -> bool:
        if found.month not in self.months:
            return False
        if self.both_days:
            return self._is_month_day(found) and self._is_weekday(found)
        return self._is_month_day(found) or self._is_weekday(found)

    def _is_month_day(self, found: date) -> bool:
        return found.day in self.days or (self.last_day and found.day == _month_length(found))

    def _is_weekday(self, found: date) -> bool:
        weekday = found.isoweekday() % 7
        return (
            weekday in self.weekdays
            or (weekday, (found.day + 6) // 7) in self.nth_weekdays
            or (weekday in self.last_weekdays and found.day + 7 > _month_length(found))
        )


@lru_cache(maxsize=4_096)
def parse_cron(expression: str) -> Cron:
    """Read an expression; refuse one that cannot be read, or that never comes true, with the reason."""
    if not isinstance(expression, str) or not 0 < len(expression) <= LONGEST_EXPRESSION:
        raise InvalidSchedule("cron", f"is {expression!r}"[:LONGEST_EXPRESSION], "Write it like '0 9 * * MON-FRI'.")
    words = expression.strip()
    if words.startswith("@"):
        if words.lower() not in NICKNAMES:
            raise InvalidSchedule("cron", f"is {expression!r}", f"Use one of {', '.join(NICKNAMES)}.")
        words = NICKNAMES[words.lower()]
    fields = words.upper().split()
    if len(fields) not in (_FIVE, _SIX):
        raise InvalidSchedule(
            "cron",
            f"{expression!r} has {len(fields)} fields",
            "Write minute, hour, day of month, month, day of week; a sixth field in front is the second.",
        )
    try:
        return _checked(_read(expression, fields if len(fields) == _SIX else ["0", *fields]))
    except _Problem as problem:
        reason, remedy = problem.args
        raise InvalidSchedule("cron", f"{expression!r}: {reason}", remedy) from None


def _read(expression: str, fields: list[str]) -> Cron:
    second, minute, hour, day, month, weekday = fields
    days, last_day = _read_days(day)
    weekdays, nth, last = _read_weekdays(weekday)
    return Cron(
        text=expression,
        seconds=tuple(sorted(_SECOND.values(second))),
        minutes=tuple(sorted(_MINUTE.values(minute))),
        hours=tuple(sorted(_HOUR.values(hour))),
        days=days,
        last_day=last_day,
        months=_MONTH.values(month),
        weekdays=weekdays,
        nth_weekdays=nth,
        last_weekdays=last,
        # As in Debian's cron: a day must match both fields when one of them begins with a star, else either.
        both_days=day.startswith("*") or weekday.startswith("*"),
        wild=any(field.startswith("*") for field in (second, minute, hour)),
    )


def _read_days(text: str) -> tuple[frozenset[int], bool]:
    parts = text.split(",")
    plain = [part for part in parts if part != "L"]
    return (_DAY.values(",".join(plain)) if plain else frozenset()), len(plain) < len(parts)


def _read_weekdays(text: str) -> tuple[frozenset[int], frozenset[tuple[int, int]], frozenset[int]]:
    """Read the last field: plain days, the nth of a month (MON#2), the last of a month (5L)."""
    plain: list[str] = []
    nth: set[tuple[int, int]] = set()
    last: set[int] = set()
    for part in text.split(","):
        name, sharp, count = part.partition("#")
        if sharp:
            if count not in {"1", "2", "3", "4", "5"}:
                raise _Problem(f"the day of week is {part!r}", "Count from 1 to 5, such as MON#2.")
            nth.add((_WEEKDAY.number(name) % 7, int(count)))
        elif len(part) > 1 and part.endswith("L"):
            last.add(_WEEKDAY.number(part[:-1]) % 7)
        else:
            plain.append(part)
    days = frozenset(day % 7 for day in _WEEKDAY.values(",".join(plain))) if plain else frozenset()
    return days, frozenset(nth), frozenset(last)


def _checked(cron: Cron) -> Cron:
    """Return an expression that comes true at some time."""
    if cron._next_day(0) is None:  # noqa: SLF001 # its own module
        if cron.both_days and cron.days and not cron.last_day and min(cron.days) > max(map(_longest, cron.months)):
            months = " or ".join(calendar.month_name[month] for month in sorted(cron.months))
            days = " or ".join(map(str, sorted(cron.days)))
            raise _Problem(f"there is no {days} {months}, so it would never fire", "Use the day L for a month's last.")
        raise _Problem("no day meets both the day of month and the day of week", "Widen one of the two fields.")
    return cron


def _longest(month: int) -> int:
    return _LONGEST_FEBRUARY if month == _FEBRUARY else calendar.monthrange(2001, month)[1]


def _month_length(found: date) -> int:
    return calendar.monthrange(found.year, found.month)[1]


def _first_of_next_month(found: date) -> date:
    return date(found.year + 1, 1, 1) if found.month == len(_MONTHS) else date(found.year, found.month + 1, 1)
