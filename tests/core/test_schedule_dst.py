"""Every change of every zone's clocks from 2025 to 2035 against a walk through Debian cron's main loop.

The oracle takes one step a minute and keeps a virtual time, as the main loop in cron.c of Debian's cron 3.0pl1-162 does
(bookworm; read, not remembered): wildcard jobs, whose minute or hour begins with a star, see the wall clock of each
minute; fixed-time jobs see every minute of the virtual clock, which runs through skipped time at once and waits while
time is repeated; a clock that is more than 180 minutes ahead of it, or 180 or more behind, was set, and both go on from
there. It shares no code with the implementation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit.core.schedule.cron import parse_cron
from godwit.core.schedule.times import fires, next_fire
from godwit.core.schedule.zones import zone

FIRST, LAST = 2025, 2035
WINDOW = 3 * 60
"""Minutes looked at on either side of a change."""

EXPRESSIONS = (
    "* * * * *",
    "*/7 * * * *",
    "*/30 0-3 * * *",
    "15 * * * *",
    "* 2 * * *",
    "0 */2 * * *",
    "30 2 * * *",
    "0 0 * * *",
    "15,45 0,1,2,3 * * *",
    "59 23 * * *",
    "30 0 * * SUN",
    "30 1 1-7 * SAT",
    "0 2 L * *",
    "10-50/20 1-2 * 3,10,11 *",
    "5 4 * * *",
)


@dataclass(frozen=True)
class Jump:
    """A change of the clocks: the same for all zones that make it together."""

    at: int
    before: int
    after: int


def offset(name: str, instant: int) -> int:
    shift = datetime.fromtimestamp(instant, ZoneInfo(name)).utcoffset()
    assert shift is not None
    return shift.days * 86_400 + shift.seconds


@cache
def jumps(name: str) -> tuple[Jump, ...]:
    """Find a zone's changes by looking once a day, then for the minute between; no zone has two within a day."""
    found = []
    at = int(datetime(FIRST, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(LAST + 1, 1, 1, tzinfo=UTC).timestamp())
    step = 24 * 3600
    before = offset(name, at)
    while at < end:
        after = offset(name, at + step)
        if after != before:
            minutes = range(at, at + step + 60, 60)
            minute = bisect_left(minutes, True, key=lambda one, before=before: offset(name, one) != before)  # type: ignore[misc]
            found.append(Jump(minutes[minute], before, after))
            before = after
        at += step
    return tuple(found)


def zones_by_jump() -> dict[Jump, list[str]]:
    same: dict[bytes, str] = {}
    for name in files("tzdata").joinpath("zones").read_text("utf-8").split():
        same.setdefault(files("tzdata.zoneinfo").joinpath(*name.split("/")).read_bytes(), name)
    found: dict[Jump, list[str]] = {}
    for name in same.values():  # several names of one zone are one file's bytes
        for jump in jumps(name):
            found.setdefault(jump, []).append(name)
    return found


def numbers(text: str, least: int, most: int, names: str = "") -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        ends = [
            names.split().index(one) + least if one in names.split() else int(one)
            for one in ([str(least), str(most)] if span == "*" else span.split("-"))
        ]
        found |= set(range(ends[0], ends[-1] + 1, int(step or 1)))
    return found


@cache
def sets(expression: str) -> tuple[set[int], set[int], set[int], set[int], bool, bool, bool]:
    """Return the minutes of the day, the days, months and weekdays, and which stars there are."""
    minute, hour, day, month, weekday = expression.split()
    return (
        {60 * of_day + of_hour for of_day in numbers(hour, 0, 23) for of_hour in numbers(minute, 0, 59)},
        set() if day == "L" else numbers(day, 1, 31),
        numbers(month, 1, 12),
        {one % 7 for one in numbers(weekday, 0, 7, "SUN MON TUE WED THU FRI SAT")},
        day == "L",
        day[0] == "*" or weekday[0] == "*",
        minute[0] == "*" or hour[0] == "*",
    )


def matches(expression: str, local: int) -> bool:
    """Say whether a job is due at a local time, given in seconds as if the zone were UTC."""
    minutes, days, months, weekdays, last, both, _ = sets(expression)
    if local // 60 % 1440 not in minutes:
        return False
    wall = datetime.fromtimestamp(local, UTC)
    if wall.month not in months:
        return False
    by_day = wall.day in days or (last and (wall + timedelta(days=1)).day == 1)
    by_weekday = wall.isoweekday() % 7 in weekdays
    return (by_day and by_weekday) if both else (by_day or by_weekday)


def debian(jump: Jump, expressions: tuple[str, ...]) -> dict[str, list[int]]:
    """Walk through the minutes around a change as cron does, and note at which instants each job runs."""
    runs: dict[str, list[int]] = {expression: [] for expression in expressions}
    first = jump.at - WINDOW * 60
    virtual = first + jump.before - 60
    for instant in range(first, jump.at + WINDOW * 60, 60):
        running = instant + (jump.before if instant < jump.at else jump.after)
        difference = (running - virtual) // 60
        passed = range(0)
        if 0 < difference <= 180:
            passed = range(virtual + 60, running + 60, 60)
            virtual = running
        elif difference > 180 or difference <= -180:
            passed = range(running, running + 60, 60)
            virtual = running
        for expression, noted in runs.items():
            seen = (running,) if sets(expression)[6] else passed
            if any(matches(expression, one) for one in seen):
                noted.append(instant)
    return runs


def fired(expression: str, name: str, jump: Jump) -> list[int]:
    first, end = jump.at - WINDOW * 60, jump.at + WINDOW * 60
    found = fires(parse_cron(expression), zone(name), first - 1)
    return list(takewhile(lambda one: one < end, found))


def test_every_change_of_every_zone_is_kept_as_debians_cron_keeps_it() -> None:
    together = zones_by_jump()
    assert len(together) > 600  # otherwise the zones are not what they should be
    wrong = []
    for number, (jump, names) in enumerate(together.items()):
        # Each change meets a third of the expressions; each kind of jump meets all of them within three years.
        chosen = tuple(EXPRESSIONS[number % 3 :: 3])
        expected = debian(jump, chosen)
        wrong += [one for one in chosen if fired(one, names[0], jump) != expected[one]]
        # The others that jump with it differ in nothing that is asked for here.
        assert {zone(name).next_change(jump.at - 1, jump.at) for name in names} == {(jump.at, jump.before, jump.after)}
    assert wrong == []


@pytest.mark.parametrize(
    "name",
    [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Antarctica/Troll",
        "Africa/Cairo",
        "Africa/Casablanca",
        "America/Havana",
        "America/Santiago",
        "America/St_Johns",
        "Asia/Beirut",
        "Atlantic/Azores",
        "America/Scoresbysund",
        "America/Nuuk",
    ],
)
def test_the_zones_with_unusual_jumps_meet_every_expression(name: str) -> None:
    assert jumps(name)
    for jump in jumps(name)[:6]:
        expected = debian(jump, EXPRESSIONS)
        assert {one: fired(one, name, jump) for one in EXPRESSIONS} == expected


def test_a_job_in_the_skipped_hour_runs_right_after_it() -> None:
    assert local("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_job_in_the_repeated_hour_runs_once() -> None:
    assert local("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_a_job_with_a_star_follows_the_wall_clock() -> None:
    assert local("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 2) == [
        "2026-03-30T02:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    assert local("*/30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", 5) == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-26T02:00:00+01:00",
    ]


def test_several_times_in_one_skipped_hour_are_one_firing() -> None:
    assert local("0,20,40 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:00:00+02:00",
    ]


def test_a_day_that_a_zone_left_out_is_a_correction_and_stays_left_out() -> None:
    # Samoa went from the 29th to the 31st of December 2011.
    assert local("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00", 2) == [
        "2011-12-29T12:00:00-10:00",
        "2011-12-31T12:00:00+14:00",
    ]


def test_seconds_follow_the_same_rules() -> None:
    assert local("15 30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:15+02:00",
    ]
    assert local("15 30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", 2) == [
        "2026-10-25T02:30:15+02:00",
        "2026-10-26T02:30:15+01:00",
    ]


def local(expression: str, name: str, after: str, count: int) -> list[str]:
    found = fires(parse_cron(expression), zone(name), int(datetime.fromisoformat(f"{after}+00:00").timestamp()))
    return [datetime.fromtimestamp(next(found), ZoneInfo(name)).isoformat() for _ in range(count)]


def field(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    # Not 5-5/3, which cronsim takes for 5/3.
    wide = st.tuples(st.integers(least, most - 1), st.integers(1, 5)).map(lambda one: f"{one[0]}-{min(most, sum(one))}")
    part = st.one_of(number.map(str), span, st.builds("{}/{}".format, wide, st.integers(1, 20)))
    return st.one_of(
        st.just("*"), st.integers(2, 30).map("*/{}".format), st.lists(part, min_size=1, max_size=3).map(",".join)
    )


def crons() -> st.SearchStrategy[str]:
    return st.tuples(field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 7)).map(" ".join)


def sixes() -> st.SearchStrategy[str]:
    return st.tuples(field(0, 59), crons()).map(" ".join)


def steps(expression: str, after: int, count: int) -> Iterator[int]:
    walk = CronSim(expression, datetime.fromtimestamp(after, UTC))
    for _ in range(count):
        yield int(next(walk).timestamp())


@settings(max_examples=150, deadline=None)
@given(st.one_of(crons(), sixes()), st.integers(1_700_000_000, 2_100_000_000))
def test_without_changes_of_the_clock_it_agrees_with_cronsim(expression: str, after: int) -> None:
    found = fires(parse_cron(expression), zone("UTC"), after)
    assert [next(found) for _ in range(5)] == list(steps(expression, after, 5))


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(crons(), sixes()),
    st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo", "America/Havana", "Asia/Kolkata"]),
    st.integers(1_735_689_600, 2_050_000_000),
)
def test_a_firing_lies_ahead_and_nothing_is_left_out_between(expression: str, name: str, after: int) -> None:
    cron, place = parse_cron(expression), zone(name)
    found = next_fire(cron, place, after)
    assert found is not None
    assert found > after
    # Asking again from any moment before it gives the same answer: no other firing hides between.
    for part in range(1, 6):
        assert next_fire(cron, place, after + (found - 1 - after) * part // 5) == found
