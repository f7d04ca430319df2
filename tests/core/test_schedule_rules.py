from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit.core.clock import from_ms, to_ms
from godwit.core.errors import InvalidSchedule
from godwit.core.schedule.cron import NICKNAMES, parse_cron
from godwit.core.schedule.rules import (
    CATCH_UP_MOST,
    MISSED_COUNTED,
    check_due,
    check_name,
    checked_rule,
    daily,
    monthly,
    plan,
    preview,
    weekly,
)
from godwit.core.schedule.schedules import (
    Misfire,
    Rule,
    Schedule,
    campaign_id,
    campaign_ids,
    firing_id,
    jitter_ms,
    single_id,
)
from godwit.core.schedule.zones import zone

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOON_MS = to_ms(NOON)
HOUR_MS = 3_600_000
YEAR = timedelta(days=365)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("0 0 31 2 *", "there is no 31 February, so it would never fire"),
        ("0 0 30,31 2 *", "there is no 30 or 31 February, so it would never fire"),
        ("0 0 31 4,6 *", "there is no 31 April or June, so it would never fire"),
        ("0 0 */20 * MON#5", "no day meets both the day of month and the day of week"),
        ("60 * * * *", "the minute is '60'. Use 0 to 59."),
        ("0 24 * * *", "the hour is '24'. Use 0 to 23."),
        ("0 0 0 * *", "the day of month is '0'. Use 1 to 31."),
        ("0 0 * 13 *", "the month is '13'. Use 1 to 12, or JAN to DEC."),
        ("0 0 * * 8", "the day of week is '8'. Use 0 to 7, or SUN to SAT."),
        ("0 0 * * MON#6", "Count from 1 to 5"),
        ("*/0 * * * *", "has no usable step"),
        ("9-3 * * * *", "runs backwards"),
        ("1,,2 * * * *", "the minute is ''"),
        ("-1 * * * *", "the minute is ''"),
        ("\u0661 * * * *", "the minute is"),
        ("* * * *", "has 4 fields"),
        ("* * * * * * *", "has 7 fields"),
        ("@reboot", "Use one of @hourly"),
        ("", "is ''"),
        ("0 0 * * *" + " " * 300, "Write it like"),
    ],
)
def test_an_impossible_expression_is_refused_with_the_reason(expression: str, reason: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        parse_cron(expression)
    assert reason in str(refused.value)


@settings(max_examples=300)
@given(st.text(alphabet="0123456789*/,-#L MONJA@\x00", max_size=24))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        found = parse_cron(text)
    except InvalidSchedule:
        return
    assert found.next_local(0) is not None


def test_nicknames_are_the_usual_ones() -> None:
    assert {name: times(name, 2) for name in ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")} == {
        "@hourly": ["2026-06-01T13:00", "2026-06-01T14:00"],
        "@daily": ["2026-06-02T00:00", "2026-06-03T00:00"],
        "@weekly": ["2026-06-07T00:00", "2026-06-14T00:00"],
        "@monthly": ["2026-07-01T00:00", "2026-08-01T00:00"],
        "@yearly": ["2027-01-01T00:00", "2028-01-01T00:00"],
    }
    assert times("@MIDNIGHT", 1) == times("@daily", 1)
    assert times("@annually", 1) == times("@yearly", 1)
    assert len(NICKNAMES) == 7


def test_a_sixth_field_in_front_is_the_second() -> None:
    found = preview(Rule(cron="*/20 59 23 * * *"), after_ms=NOON_MS, count=4)
    assert [one.strftime("%d %H:%M:%S") for one in found] == [
        "01 23:59:00",
        "01 23:59:20",
        "01 23:59:40",
        "02 23:59:00",
    ]


def test_the_last_day_the_second_monday_and_the_last_friday() -> None:
    assert times("0 9 L * *", 2) == ["2026-06-30T09:00", "2026-07-31T09:00"]
    assert times("0 9 * * MON#2", 2) == ["2026-06-08T09:00", "2026-07-13T09:00"]
    assert times("0 9 * * 5L", 2) == ["2026-06-26T09:00", "2026-07-31T09:00"]


def test_either_day_field_will_do_unless_one_begins_with_a_star() -> None:
    assert times("0 0 13 * FRI", 3) == ["2026-06-05T00:00", "2026-06-12T00:00", "2026-06-13T00:00"]
    assert times("0 0 */12 * FRI", 2) == ["2026-09-25T00:00", "2026-11-13T00:00"]


def test_helpers_write_expressions() -> None:
    assert daily("09:30") == "30 9 * * *"
    assert weekly("mon,thu", "7:05") == "5 7 * * MON,THU"
    assert monthly(15, "00:00") == "0 0 15 * *"
    assert monthly("last") == "0 0 L * *"
    for wrong in ("24:00", "noon", "9.30", ""):
        with pytest.raises(InvalidSchedule):
            daily(wrong)
    with pytest.raises(InvalidSchedule):
        weekly("someday")
    with pytest.raises(InvalidSchedule):
        monthly(32)


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../../etc/passwd", "Europe", "\x00"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidSchedule, match="Use an IANA name such as Europe/Berlin"):
        zone(name)


def test_times_must_be_aware_to_come_and_not_too_far() -> None:
    with pytest.raises(InvalidSchedule, match="without a time zone"):
        check_due(NOON.replace(tzinfo=None), now_ms=NOON_MS, max_future=YEAR)
    with pytest.raises(InvalidSchedule, match="in the past"):
        check_due(NOON - MINUTE, now_ms=NOON_MS, max_future=YEAR)
    with pytest.raises(InvalidSchedule, match=r"more than 365 days ahead.*SCHEDULER_MAX_FUTURE_DAYS"):
        check_due(NOON + YEAR + MINUTE, now_ms=NOON_MS, max_future=YEAR)
    assert check_due(NOON + YEAR, now_ms=NOON_MS, max_future=YEAR) == NOON_MS + 365 * 24 * HOUR_MS


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (Rule(cron="* * * * *", timezone="Nowhere/At_All"), "which no zone is called"),
        (Rule(cron="* * * * *", starts_at=datetime(2027, 1, 1)), "starts_at.*without a time zone"),
        (Rule(cron="* * * * *", ends_at=datetime(2027, 1, 1)), "ends_at.*without a time zone"),
        (Rule(cron="* * * * *", starts_at=NOON, ends_at=NOON), "is not after starts_at"),
        (Rule(cron="* * * * *", ends_at=NOON - MINUTE), "leaves no time"),
        (Rule(cron="* * * * *", max_occurrences=0), "max_occurrences is 0"),
        (Rule(cron="* * * * *", jitter=timedelta(days=2)), "jitter is 2 days"),
        (Rule(cron="* * * * *", jitter=timedelta(seconds=-1)), "jitter"),
        (Rule(cron="0 0 29 2 *"), "fires first at 2028-02-29.*more than 365 days ahead"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused(rule: Rule, reason: str) -> None:
    with pytest.raises(InvalidSchedule, match=reason):
        checked_rule(rule, now_ms=NOON_MS, max_future=YEAR)


def test_names_of_schedules_are_printable_and_bounded() -> None:
    assert check_name("id", "birthdays 2026/ü") == "birthdays 2026/ü"
    for wrong in ("", "a\nb", "x" * 256):
        with pytest.raises(InvalidSchedule):
            check_name("id", wrong)


def test_a_rule_begins_and_ends_when_it_is_told_to() -> None:
    rule = Rule(cron="0 * * * *", starts_at=NOON + timedelta(hours=3), ends_at=NOON + timedelta(hours=6))
    found = preview(rule, after_ms=NOON_MS, count=10)
    # The begin counts, the end does not.
    assert found == [NOON + timedelta(hours=hours) for hours in (3, 4, 5)]


def test_a_preview_ends_with_the_occurrences() -> None:
    assert len(preview(Rule(cron="* * * * *", max_occurrences=3), after_ms=NOON_MS, count=10)) == 3


def test_a_plan_fires_what_lies_in_the_look_ahead() -> None:
    found = plan(hourly(next_fire_at=NOON), now_ms=NOON_MS, until_ms=NOON_MS + 2 * HOUR_MS, grace=MINUTE, most=100)
    assert found.fires_ms == (NOON_MS, NOON_MS + HOUR_MS, NOON_MS + 2 * HOUR_MS)
    assert found.next_fire_ms == NOON_MS + 3 * HOUR_MS
    assert found.skipped == 0


def test_a_plan_is_bounded_and_says_where_to_go_on() -> None:
    found = plan(hourly(next_fire_at=NOON), now_ms=NOON_MS, until_ms=NOON_MS + 9 * HOUR_MS, grace=MINUTE, most=2)
    assert found.fires_ms == (NOON_MS, NOON_MS + HOUR_MS)
    assert found.next_fire_ms == NOON_MS + 2 * HOUR_MS


@pytest.mark.parametrize(
    ("misfire", "late"),
    [(Misfire.SKIP, []), (Misfire.FIRE_ONCE, [1]), (Misfire.CATCH_UP, [5, 4, 3, 2, 1])],
)
def test_what_was_missed_is_skipped_fired_once_or_caught_up(misfire: Misfire, late: list[int]) -> None:
    schedule = hourly(misfire, next_fire_at=NOON - timedelta(hours=5))
    now_ms = NOON_MS + 1_800_000
    found = plan(schedule, now_ms=now_ms - HOUR_MS, until_ms=now_ms, grace=MINUTE, most=100)
    assert found.fires_ms == (*(NOON_MS - hours * HOUR_MS for hours in late), NOON_MS)
    assert found.skipped == 5 - len(late)
    assert found.next_fire_ms == NOON_MS + HOUR_MS


def test_a_firing_within_the_grace_is_not_missed() -> None:
    schedule = hourly(Misfire.SKIP, next_fire_at=NOON)
    for late_ms, fires in ((60_000, (NOON_MS,)), (60_001, ())):
        found = plan(schedule, now_ms=NOON_MS + late_ms, until_ms=NOON_MS + late_ms, grace=MINUTE, most=9)
        assert found.fires_ms == fires


def test_catching_up_is_bounded_even_after_a_month_of_seconds() -> None:
    schedule = Schedule(
        id="s", queue="q", message=b"", rule=Rule(cron="* * * * * *", misfire=Misfire.CATCH_UP), next_fire_at=NOON
    )
    now_ms = NOON_MS + 30 * 24 * HOUR_MS
    found = plan(schedule, now_ms=now_ms, until_ms=now_ms, grace=timedelta(0), most=CATCH_UP_MOST + 1)
    assert found.fires_ms == tuple(range(now_ms - CATCH_UP_MOST * 1_000, now_ms + 1, 1_000))
    assert found.skipped == MISSED_COUNTED - CATCH_UP_MOST


def test_occurrences_end_a_schedule() -> None:
    schedule = hourly(next_fire_at=NOON, occurrences=3, max_occurrences=5)
    found = plan(schedule, now_ms=NOON_MS, until_ms=NOON_MS + 9 * HOUR_MS, grace=MINUTE, most=100)
    assert found.fires_ms == (NOON_MS, NOON_MS + HOUR_MS)
    assert found.next_fire_ms is None


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(Misfire)),
    st.sampled_from(["*/10 * * * *", "0 * * * *", "30 2 * * *"]),
    st.lists(st.integers(1, 7_200), min_size=1, max_size=12),
)
def test_however_often_it_is_looked_at_each_time_is_planned_once(
    misfire: Misfire, cron: str, pauses: list[int]
) -> None:
    expected = preview(Rule(cron=cron, timezone="Europe/Berlin"), after_ms=NOON_MS, count=200)
    schedule = hourly(misfire, cron=cron, timezone="Europe/Berlin", next_fire_at=expected[0])
    fired: list[int] = []
    now_ms, skipped = NOON_MS, 0
    for minutes in pauses:
        now_ms += minutes * 1_000
        found = plan(schedule, now_ms=now_ms, until_ms=now_ms + HOUR_MS, grace=MINUTE, most=1_000)
        fired += found.fires_ms
        skipped += found.skipped
        assert found.next_fire_ms is not None
        schedule = hourly(misfire, cron=cron, timezone="Europe/Berlin", next_fire_at=from_ms(found.next_fire_ms))
    assert len(set(fired)) == len(fired)
    assert fired == sorted(fired)
    assert set(fired) <= set(map(to_ms, expected))
    if not skipped:
        assert fired == [to_ms(one) for one in expected[: len(fired)]]


def test_jitter_is_the_same_for_whoever_asks_and_spread_over_its_window() -> None:
    window = timedelta(minutes=10)
    found = [jitter_ms("s", NOON_MS + minute * 60_000, window) for minute in range(1_000)]
    assert found == [jitter_ms("s", NOON_MS + minute * 60_000, window) for minute in range(1_000)]
    assert all(0 <= one < 600_000 for one in found)
    assert 250_000 < sum(found) / len(found) < 350_000
    assert jitter_ms("s", NOON_MS, timedelta(0)) == 0


def test_ids_are_made_from_what_asked_for_the_firing() -> None:
    assert firing_id("s", 1, NOON_MS) == firing_id("s", 1, NOON_MS)
    different = {firing_id("s", 1, NOON_MS), firing_id("s", 2, NOON_MS), firing_id("s", 1, 0), firing_id("t", 1, 0)}
    assert len(different | {campaign_id("s", "1"), single_id("s")}) == 6
    assert campaign_id("a", "b/c") != campaign_id("a/b", "c")


@given(st.text(max_size=20), st.lists(st.text(max_size=20), unique=True))
def test_ids_of_campaigns_are_different_for_each_key_and_say_how_to_read_them(campaign: str, keys: list[str]) -> None:
    made = [campaign_id(campaign, key) for key in keys]
    assert len(set(made)) == len(keys)
    assert {(one.version, one.variant) for one in made} <= {(8, uuid.RFC_4122)}
    assert [str(one) for one in made] == [campaign_ids(campaign)(key) for key in keys]


def test_ids_of_neighbouring_keys_lie_together() -> None:
    ids = sorted((campaign_id("spring", f"user-{number}"), number) for number in range(10_000, 20_000))
    hundreds = [number // 100 for _, number in ids]
    assert sum(one != other for one, other in pairwise(hundreds)) == 99
    assert {one.int >> 96 for one, _ in ids}.isdisjoint(
        campaign_id("autumn", f"user-{n}").int >> 96 for n in range(100)
    )


def times(cron: str, count: int) -> list[str]:
    found = preview(Rule(cron=cron), after_ms=NOON_MS, count=count)
    return [one.isoformat()[:16] for one in found]


def hourly(
    misfire: Misfire = Misfire.FIRE_ONCE,
    *,
    next_fire_at: datetime,
    occurrences: int = 0,
    max_occurrences: int | None = None,
    cron: str = "0 * * * *",
    timezone: str = "UTC",
) -> Schedule:
    rule = Rule(cron=cron, timezone=timezone, misfire=misfire, max_occurrences=max_occurrences)
    return Schedule(id="s", queue="q", message=b"", rule=rule, next_fire_at=next_fire_at, occurrences=occurrences)
