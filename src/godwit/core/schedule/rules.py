"""Rules of schedules, as pure functions: what can be kept, when it fires, and what a late scheduler makes up for."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

import msgspec

from godwit.core.clock import from_ms, milliseconds, to_ms
from godwit.core.errors import InvalidMessage, InvalidSchedule
from godwit.core.messages.checks import aware_ms
from godwit.core.schedule.cron import parse_cron
from godwit.core.schedule.schedules import Misfire, Rule, Schedule
from godwit.core.schedule.times import next_fire
from godwit.core.schedule.zones import zone

LONGEST_JITTER: Final = timedelta(days=1)
CATCH_UP_MOST: Final = 100
"""How many missed firings are sent late at most; older ones are skipped."""

MISSED_COUNTED: Final = 10_000
"""Missed firings are counted one by one up to here."""

LONGEST_NAME: Final = 255
LONGEST_KEY: Final = 512
_TIME_OF_DAY: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at a schedule decides: which times to fire, how many were skipped, where to go on."""

    fires_ms: tuple[int, ...]
    skipped: int
    next_fire_ms: int | None


def daily(at: str = "00:00") -> str:
    """Return the expression for every day at a time of day such as 09:30."""
    hour, minute = _time_of_day(at)
    return f"{minute} {hour} * * *"


def weekly(day: str, at: str = "00:00") -> str:
    """Return the expression for a day of the week (mon to sun, or several: mon,thu) at a time of day."""
    hour, minute = _time_of_day(at)
    return parse_cron(f"{minute} {hour} * * {day.upper()}").text


def monthly(day: int | str = 1, at: str = "00:00") -> str:
    """Return the expression for a day of the month (1 to 31, or "last") at a time of day.

    A month that has no such day is left out.
    """
    hour, minute = _time_of_day(at)
    return parse_cron(f"{minute} {hour} {'L' if day == 'last' else day} * *").text


def _time_of_day(text: str) -> tuple[int, int]:
    found = _TIME_OF_DAY.fullmatch(text)
    if found is None:
        raise InvalidSchedule("at", f"is {text!r}", "Write a time of day from 00:00 to 23:59.")
    return int(found[1]), int(found[2])


def checked_rule(rule: Rule, *, now_ms: int, max_future: timedelta) -> Rule:
    """Return a rule that can be kept; refuse one that cannot, or that would never fire."""
    parse_cron(rule.cron)
    zone(rule.timezone)
    for name, instant in (("starts_at", rule.starts_at), ("ends_at", rule.ends_at)):
        if instant is not None:
            aware(name, instant)
    if rule.ends_at is not None and rule.starts_at is not None and rule.ends_at <= rule.starts_at:
        raise InvalidSchedule("ends_at", "is not after starts_at", "Let it end later, or not at all.")
    if rule.max_occurrences is not None and (type(rule.max_occurrences) is not int or rule.max_occurrences < 1):
        raise InvalidSchedule("max_occurrences", f"is {rule.max_occurrences!r}", "Use a whole number from 1, or none.")
    if not timedelta(0) <= rule.jitter <= LONGEST_JITTER:
        raise InvalidSchedule("jitter", f"is {rule.jitter}", "Use a duration from 0 to 24 hours.")
    first_ms = first_fire_ms(rule, now_ms=now_ms)
    if first_ms is None and rule.ends_at is None and rule.starts_at is not None:
        raise InvalidSchedule("starts_at", "leaves no time at which it would fire", "Let it start earlier.")
    if first_ms is None:
        raise InvalidSchedule("ends_at", "leaves no time at which it would fire", "Let it end later.")
    if first_ms > now_ms + milliseconds(max_future):
        raise InvalidSchedule(
            "cron",
            f"{rule.cron!r} fires first at {from_ms(first_ms).isoformat()}, more than {max_future.days:,} days ahead",
            "Raise scheduler.max_future_days (SCHEDULER_MAX_FUTURE_DAYS).",
        )
    return rule


def check_due(deliver_at: datetime, *, now_ms: int, max_future: timedelta, past: timedelta = timedelta(0)) -> int:
    """Return when a message is due, in milliseconds; refuse a naive time, a past one and one too far ahead."""
    due_ms = aware("deliver_at", deliver_at)
    if due_ms < now_ms - milliseconds(past):
        raise InvalidSchedule("deliver_at", f"is {deliver_at.isoformat()}, in the past", "Use a time to come.")
    if due_ms > now_ms + milliseconds(max_future):
        raise InvalidSchedule(
            "deliver_at",
            f"is {deliver_at.isoformat()}, more than {max_future.days:,} days ahead",
            "Raise scheduler.max_future_days (SCHEDULER_MAX_FUTURE_DAYS), or schedule it later.",
        )
    return due_ms


def check_expiry(expires_at: datetime | None, deliver_at: datetime) -> None:
    """Refuse a message that would be dead before it is due."""
    if expires_at is not None and aware("expires_at", expires_at) <= aware("deliver_at", deliver_at):
        raise InvalidSchedule("expires_at", "is not after deliver_at", "Let it expire later, or not at all.")


def aware(field: str, instant: datetime) -> int:
    """Return an instant in milliseconds; refuse one without a time zone, or in one that cannot be used."""
    try:
        return aware_ms(field, instant)
    except InvalidMessage as error:
        raise InvalidSchedule(field, error.problem, error.remedy) from error


def check_name(what: str, name: str, longest: int = LONGEST_NAME) -> str:
    """Return a name of a schedule, a campaign or a key that can be stored and printed."""
    if not (isinstance(name, str) and 0 < len(name) <= longest and name.isprintable()):
        raise InvalidSchedule(what, f"is {name!r}"[:100], f"Use 1 to {longest} printable characters.")
    return name


def next_fire_ms(rule: Rule, after_ms: int) -> int | None:
    """Return the rule's first time later than `after_ms`, or None when it ends before that."""
    starts_ms = after_ms if rule.starts_at is None else max(after_ms, to_ms(rule.starts_at) - 1)
    cron, place = parse_cron(rule.cron), zone(rule.timezone)
    try:
        found = next_fire(cron, place, starts_ms // 1_000)
    except (ValueError, OverflowError):  # beyond the year 9999, in which calendars end
        return None
    if found is None or (rule.ends_at is not None and found * 1_000 >= to_ms(rule.ends_at)):
        return None
    return found * 1_000


def first_fire_ms(rule: Rule, *, now_ms: int) -> int | None:
    """Return when a rule that begins now fires first."""
    return next_fire_ms(rule, now_ms)


def preview(rule: Rule, *, after_ms: int, count: int) -> list[datetime]:
    """Return the next times a rule fires, without its jitter."""
    most = count if rule.max_occurrences is None else min(count, rule.max_occurrences)
    return [from_ms(found) for found in islice(_times(rule, next_fire_ms(rule, after_ms)), most)]


def plan(schedule: Schedule, *, now_ms: int, until_ms: int, grace: timedelta, most: int) -> Plan:
    """Decide what a schedule fires up to `until_ms`; times more than `grace` ago are missed.

    At most `most` times are returned; `next_fire_ms` then still lies before `until_ms`.
    """
    rule, at = schedule.rule, None if schedule.next_fire_at is None else to_ms(schedule.next_fire_at)
    late_ms = now_ms - milliseconds(grace)
    fires: list[int] = []
    skipped = 0
    if at is not None and at < late_ms:
        fires, missed = _missed(rule, at, late_ms)
        skipped = missed - len(fires)
        at = next_fire_ms(rule, late_ms - 1)
    left = None if rule.max_occurrences is None else rule.max_occurrences - schedule.occurrences
    if left is not None and len(fires) > left:
        skipped += len(fires) - left
        fires = fires[:left]
    while at is not None and at <= until_ms and len(fires) < most and (left is None or len(fires) < left):
        fires.append(at)
        at = next_fire_ms(rule, at)
    ended = left is not None and len(fires) >= left
    return Plan(fires_ms=tuple(fires), skipped=skipped, next_fire_ms=None if ended else at)


def _missed(rule: Rule, first_ms: int, late_ms: int) -> tuple[list[int], int]:
    """Return the missed times to send all the same, and how many were missed."""
    missed = sum(1 for _ in islice(_until(rule, first_ms, late_ms), MISSED_COUNTED))
    keep = {Misfire.SKIP: 0, Misfire.FIRE_ONCE: 1, Misfire.CATCH_UP: CATCH_UP_MOST}[rule.misfire]
    if not keep:
        return [], missed
    # Look back in growing steps: a rule that fires each second may have missed a week.
    step_ms = 60_000
    while True:
        since_ms = max(first_ms - 1, late_ms - step_ms)
        begin = next_fire_ms(rule, since_ms)
        last = deque(_until(rule, begin, late_ms), maxlen=keep)
        if len(last) == keep or since_ms < first_ms:
            return list(last), max(missed, len(last))
        step_ms *= 8


def _until(rule: Rule, at: int | None, end_ms: int) -> Iterator[int]:
    while at is not None and at < end_ms:
        yield at
        at = next_fire_ms(rule, at)


def _times(rule: Rule, at: int | None) -> Iterator[int]:
    while at is not None:
        yield at
        at = next_fire_ms(rule, at)
