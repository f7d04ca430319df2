"""Time zones as schedules need them: the offset at an instant, and the next change of it.

`zoneinfo` knows a zone's changes but does not tell them. They are found by asking for the offset day by day and
halving the day in which it differs, once per zone and year.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from godwit.core.errors import InvalidSchedule
from godwit.core.schedule.cron import DAY_SECONDS


class Change(NamedTuple):
    """From this instant on the zone's clocks show `after` instead of `before` seconds more than UTC."""

    at: int
    before: int
    after: int


class Zone:
    """An IANA zone, asked in whole seconds since 1970."""

    def __init__(self, name: str, zone: ZoneInfo) -> None:
        self.name = name
        self._zone = zone
        self._years: dict[int, tuple[Change, ...]] = {}

    def offset(self, instant: int) -> int:
        """Return how many seconds its clocks are ahead of UTC at an instant."""
        shift = datetime.fromtimestamp(instant, self._zone).utcoffset()
        return 0 if shift is None else int(shift.total_seconds())

    def next_change(self, after: int, until: int) -> Change | None:
        """Return the first change later than `after` and not later than `until`."""
        for year in range(_year(after), _year(until) + 1):
            for change in self._changes(year):
                if after < change.at <= until:
                    return change
        return None

    def change_around(self, instant: int) -> Change | None:
        """Return the change within about a day of an instant, if there is one; no zone has two so close together."""
        return self.next_change(instant - _REACH, instant + _REACH)

    def _changes(self, year: int) -> tuple[Change, ...]:
        if year not in self._years:
            self._years[year] = tuple(self._search(year))
        return self._years[year]

    def _search(self, year: int) -> list[Change]:
        found = []
        at, end = _begin(year), _begin(year + 1)
        before = self.offset(at - 1)
        low = at - 1
        while low < end - 1:
            high = min(low + DAY_SECONDS, end - 1)
            after = self.offset(high)
            if after != before:
                found.append(self.change_between(low, high))
                before = after
            low = high
        return found

    def change_between(self, low: int, high: int) -> Change:
        """Return the change that makes the offset at `high` another than at `low`, the only one in between."""
        before = self.offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset(middle) == before:
                low = middle
            else:
                high = middle
        return Change(high, before, self.offset(high))


_REACH: Final = DAY_SECONDS + 7_200


@lru_cache(maxsize=1_024)
def zone(name: str) -> Zone:
    """Return a zone by its IANA name; refuse an unknown name."""
    try:
        return Zone(name, ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError, AttributeError):
        raise InvalidSchedule(
            "timezone", f"is {name!r}, which no zone is called", "Use an IANA name such as Europe/Berlin, or UTC."
        ) from None


def _begin(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


def _year(instant: int) -> int:
    return datetime.fromtimestamp(instant, UTC).year
