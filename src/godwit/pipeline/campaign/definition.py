"""A campaign's definition: which users get which message, on which of their days, at what local time."""

from __future__ import annotations

import calendar
import math
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from godwit.core.errors import InvalidSetting, listed
from godwit.core.names import check_type, queue_name

DAY: Final = timedelta(days=1)
DEFAULT_HORIZON: Final = timedelta(days=7)
MAX_HORIZON: Final = timedelta(days=366)
LAST_START: Final = datetime(9_898, 1, 1, tzinfo=UTC)
"""Instants have limits (`core.limits`), and clocks need days around a horizon."""
LEAP_DAY: Final = (2, 29)
PAYLOAD_KEYS: Final = ("user", "occurrence")
"""What every payload of a campaign says, whatever columns it has."""
FARTHEST_WEST: Final = timedelta(hours=12)
"""How long after UTC the last zone begins a day."""


class LeapDayRule(StrEnum):
    """When users born on 29 February celebrate in other years."""

    FEB28 = "feb28"
    MAR1 = "mar1"
    SKIP = "skip"


class QuietHours(msgspec.Struct, frozen=True):
    """Local times at which no message is delivered; `start` may be later than `end`, over midnight."""

    start: time
    end: time

    @property
    def length(self) -> timedelta:
        """How long the quiet hours last."""
        return timedelta(seconds=(seconds_of(self.end) - seconds_of(self.start)) % 86_400)


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """The message of a campaign, its users and its times. Column names are those of the users' table."""

    name: str
    queue: str
    type: str
    date_column: str
    local_time: time
    user_column: str = "user_id"
    zone_column: str = "timezone"
    payload_columns: tuple[str, ...] = ()
    window: timedelta = timedelta(0)
    quiet_hours: QuietHours | None = None
    leap: LeapDayRule = LeapDayRule.FEB28
    max_per_minute: int | None = None

    def __post_init__(self) -> None:
        queue_name(self.queue)
        check_type(self.type)
        for field in ("name", "date_column", "user_column", "zone_column"):
            if not getattr(self, field).strip():
                raise InvalidSetting(field, getattr(self, field), "a name")
        for name in self.payload_columns:
            if name in PAYLOAD_KEYS:
                allowed = f"a column with another name: every payload has its own {listed(PAYLOAD_KEYS)}"
                raise InvalidSetting("payload", name, allowed)
        if self.local_time.tzinfo is not None:
            raise InvalidSetting("local_time", self.local_time, "a time without a zone: each user has their own")
        if self.window < timedelta(0) or self.window >= DAY:
            raise InvalidSetting("window", self.window, "a duration from zero to less than a day")
        quiet = self.quiet_hours
        if quiet is not None and (not quiet.length or self.window > DAY - quiet.length):
            raise InvalidSetting(
                "quiet_hours", f"{quiet.start:%H:%M}-{quiet.end:%H:%M}", "hours that leave room for the window"
            )
        if self.max_per_minute is not None and self.max_per_minute < 1:
            raise InvalidSetting("max_per_minute", self.max_per_minute, "a number from 1")

    @property
    def latest(self) -> timedelta:
        """How long after the beginning of a day in UTC its last message is delivered, anywhere."""
        latest = timedelta(seconds=seconds_of(self.local_time)) + self.window + FARTHEST_WEST
        return latest if self.quiet_hours is None else latest + self.quiet_hours.length + self.window


class Horizon(msgspec.Struct, frozen=True):
    """The planned instants: from `start` up to, but not including, `end`."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for field in ("start", "end"):
            moment: datetime = getattr(self, field)
            if moment.tzinfo is None:
                raise InvalidSetting(field, moment, "a time with its zone")
        if not timedelta(0) < self.end - self.start <= MAX_HORIZON:
            raise InvalidSetting("horizon", self.end - self.start, "more than nothing and at most 366 days")

    @classmethod
    def from_days(cls, first: date, length: timedelta = DEFAULT_HORIZON) -> Horizon:
        """Return the horizon that begins with a UTC day."""
        start = datetime.combine(first, time(), UTC)
        if start > LAST_START - length:
            raise InvalidSetting("start", str(first), f"a day that leaves room for the horizon before {LAST_START:%Y}")
        return cls(start, start + length)

    def local_days(self, latest: timedelta) -> list[date]:
        """Return every calendar day whose messages can be due within the horizon, at most `latest` after it begins.

        Quiet hours and spreading can move a delivery past several midnights.
        """
        before = max(2, math.ceil(latest / DAY))
        first = (self.start.astimezone(UTC) - before * DAY).date()
        days = math.ceil((self.end - self.start) / DAY) + before + 2
        last = date.max.toordinal()
        return [date.fromordinal(day) for day in range(first.toordinal(), first.toordinal() + days) if day <= last]


def celebrations(horizon: Horizon, campaign: Campaign) -> list[tuple[int, date]]:
    """Return which birthdays (month * 100 + day) are celebrated on which day that matters to the horizon."""
    days = horizon.local_days(campaign.latest)
    pairs = [(day.month * 100 + day.day, day) for day in days]
    rules = {LeapDayRule.FEB28: (2, 28), LeapDayRule.MAR1: (3, 1), LeapDayRule.SKIP: None}
    substitute = rules[campaign.leap]
    pairs += [
        (LEAP_DAY[0] * 100 + LEAP_DAY[1], day)
        for day in days
        if (day.month, day.day) == substitute and not calendar.isleap(day.year)
    ]
    return sorted(pairs)


def seconds_of(moment: time) -> int:
    """Return the seconds since midnight."""
    return moment.hour * 3_600 + moment.minute * 60 + moment.second
