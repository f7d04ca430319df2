from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

from godwit.core.errors import InvalidSetting
from godwit.core.schedule.schedules import campaign_id
from godwit.pipeline.campaign.definition import Campaign, Horizon, LeapDayRule, QuietHours
from godwit.pipeline.campaign.zone_clocks import zones
from godwit.pipeline.transforms.plan import crowded_minutes, plan_candidates, plan_messages, rejected_users

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

User = tuple[str | None, str | None, str | None]

USERS = 100_000
ODD_DATES = (
    "1990-5-5", "1990-05-5 ", " 1990-05-05", "1990-05-05T", "1990-05", "19900505", "+990-05-05", "05.05.1990",
    "1990-05-5T", "1990-05- 5", "1990- 5-05", " 990-05-05", "-990-05-05", "1990-5 -05", "99990-05-1", "1990-05--1",
    "T990-05-01", "1990-05-0\u0665", "1990-05-0\uff15",
)  # fmt: skip
SCHEMA = "user_id string, timezone string, born string"


@pytest.fixture
def far_away(spark: SparkSession) -> Iterator[SparkSession]:
    """Give a session whose own zone is far from UTC and changes its clock."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def campaign(**settings: Any) -> Campaign:
    return Campaign(
        **{
            "name": "birthdays",
            "queue": "birthdays",
            "type": "birthday",
            "date_column": "born",
            "local_time": time(2, 30),
            **settings,
        }
    )


def celebrated(born: date, year: int, leap: LeapDayRule) -> date | None:
    """Say when a user celebrates in a year, by another way than the one under test."""
    try:
        return born.replace(year=year)
    except ValueError:
        return {LeapDayRule.FEB28: date(year, 2, 28), LeapDayRule.MAR1: date(year, 3, 1), LeapDayRule.SKIP: None}[leap]


def expected(users: list[User], plan: Campaign, horizon: Horizon) -> dict[tuple[str, date], int]:
    found = {}
    for user, zone, born in users:
        assert user is not None
        assert zone is not None
        for year in range(horizon.start.year - 1, horizon.end.year + 2):
            day = celebrated(date.fromisoformat(born or ""), year, plan.leap)
            if day is not None:
                moment = datetime.combine(day, plan.local_time, ZoneInfo(zone)).astimezone(UTC)
                if horizon.start <= moment < horizon.end:
                    found[user, day] = int(moment.timestamp())
    return found


def actual(plan: DataFrame) -> dict[tuple[str, date], int]:
    found = plan.select("user", "occurrence", F.unix_timestamp("deliver_at").alias("instant")).toArrow()
    return {(user, day): instant for user, day, instant in zip(*(c.to_pylist() for c in found.columns), strict=True)}


@pytest.mark.parametrize(
    ("first", "leap"),
    [
        pytest.param(date(2026, 3, 6), LeapDayRule.SKIP, id="American clocks go forward"),
        pytest.param(date(2026, 10, 23), LeapDayRule.FEB28, id="European clocks go back"),
        pytest.param(date(2027, 2, 26), LeapDayRule.FEB28, id="no 29 February, the 28th instead"),
        pytest.param(date(2027, 2, 26), LeapDayRule.MAR1, id="no 29 February, 1 March instead"),
        pytest.param(date(2027, 12, 29), LeapDayRule.SKIP, id="over the new year"),
        pytest.param(date(2028, 2, 26), LeapDayRule.SKIP, id="a 29 February"),
    ],
)
def test_every_user_of_every_zone_is_planned_for_the_right_instant(
    far_away: SparkSession, first: date, leap: LeapDayRule
) -> None:
    draw = random.Random(first.toordinal())
    horizon, plan = Horizon.from_days(first), campaign(leap=leap)
    days = [date(1992, 2, 29), *(date(1990, 1, 1) + timedelta(days=number) for number in range(365))]
    near = [day for day in days if celebrated(day, first.year, leap) and near_to(day, first)] + [date(1992, 2, 29)]
    users: list[User] = [
        (f"u{number}", zones()[number % len(zones())], draw.choice(near if number % 10 else days).isoformat())
        for number in range(USERS // 6)
    ]
    names = ("user_id", "timezone", "born")
    table = pa.table(dict(zip(names, zip(*users, strict=True), strict=True)))
    found = plan_messages(plan_candidates(far_away.createDataFrame(table), plan), plan, horizon)
    wanted = expected(users, plan, horizon)
    assert len(wanted) > USERS / 20
    assert actual(found) == wanted


def near_to(day: date, first: date) -> bool:
    return any(
        (day.month, day.day) == ((first + timedelta(days=number)).month, (first + timedelta(days=number)).day)
        for number in range(-2, 10)
    )


def test_the_id_follows_from_campaign_user_and_day(spark: SparkSession) -> None:
    users = spark.createDataFrame([("ünï:1", "Europe/Berlin", "1990-05-05")], SCHEMA)
    (row,) = plan_messages(
        plan_candidates(users, campaign()), campaign(), Horizon.from_days(date(2026, 5, 1))
    ).collect()
    assert uuid.UUID(row.message_id) == campaign_id("birthdays", "ünï:1/2026-05-05")


def test_a_user_who_is_there_twice_is_planned_once(spark: SparkSession) -> None:
    users = spark.createDataFrame([("a", "Europe/Berlin", "1990-05-05"), ("b", "UTC", "1990-05-05")] * 3, SCHEMA)
    found = plan_messages(plan_candidates(users, campaign()), campaign(), Horizon.from_days(date(2026, 5, 1))).collect()
    assert sorted(row.user for row in found) == ["a", "b"]


def test_a_user_that_cannot_be_planned_is_rejected_with_the_reason(spark: SparkSession) -> None:
    users: list[User] = [
        ("a", "Europe/Berlin", "1990-05-05"),
        ("b", "Mars/Olympus", "1990-05-05"),
        ("c", None, "1990-05-05"),
        ("d", "Europe/Berlin", "1990-02-30"),
        *(("d", "Europe/Berlin", text) for text in ODD_DATES),
        ("e", "Europe/Berlin", None),
        ("", "Europe/Berlin", "1990-05-05"),
        (None, "Europe/Berlin", "1990-05-05"),
        ("x" * 201, "Europe/Berlin", "1990-05-05"),
        ("f", "America/Coyhaique", "1990-05-05"),
    ]
    candidates = plan_candidates(spark.createDataFrame(users, SCHEMA), campaign())
    assert {(row.user, row.reason) for row in rejected_users(candidates).collect()} == {
        ("b", "unknown time zone Mars/Olympus"),
        ("c", "no time zone"),
        ("d", "not a date: 1990-02-30"),
        *(("d", f"not a date: {text}") for text in ODD_DATES),
        ("e", "no date"),
        ("", "no user id"),
        (None, "no user id"),
        ("x" * 201, "a user id longer than 200 characters"),
    }
    found = actual(plan_messages(candidates, campaign(), Horizon.from_days(date(2026, 5, 1))))
    assert {user for user, _ in found} == {"a", "f"}


def test_a_window_spreads_users_and_quiet_hours_move_them_to_their_end(spark: SparkSession) -> None:
    users: list[User] = [(f"u{number}", "Asia/Tokyo", "1990-05-05") for number in range(2_000)]
    plan = campaign(
        local_time=time(21), window=timedelta(hours=2), quiet_hours=QuietHours(time(22), time(8)), max_per_minute=10
    )
    found = plan_messages(
        plan_candidates(spark.createDataFrame(users, SCHEMA), plan), plan, Horizon.from_days(date(2026, 5, 1))
    )
    clock = [
        datetime.fromtimestamp(instant, ZoneInfo("Asia/Tokyo")).replace(tzinfo=None)
        for instant in actual(found).values()
    ]
    early = [shown for shown in clock if shown < datetime(2026, 5, 5, 22)]
    late = [shown for shown in clock if shown >= datetime(2026, 5, 6, 8)]
    assert len(early) + len(late) == len(users)
    assert min(len(early), len(late)) > 800
    assert min(early) >= datetime(2026, 5, 5, 21)
    assert max(late) < datetime(2026, 5, 6, 10)
    again = plan_messages(
        plan_candidates(spark.createDataFrame(users[::-1], SCHEMA), plan), plan, Horizon.from_days(date(2026, 5, 1))
    )
    assert actual(again) == actual(found)
    full = crowded_minutes(found, plan).collect()
    assert full
    assert all(row.messages > 10 for row in full)


@pytest.mark.parametrize(
    "settings",
    [
        {"local_time": time(9, tzinfo=UTC)},
        {"window": timedelta(days=1)},
        {"window": timedelta(seconds=-1)},
        {"quiet_hours": QuietHours(time(8), time(8))},
        {"quiet_hours": QuietHours(time(9), time(8)), "window": timedelta(hours=2)},
        {"max_per_minute": 0},
        {"name": " "},
    ],
)
def test_an_impossible_campaign_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        campaign(**settings)


def test_an_impossible_horizon_is_refused() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for first, last in [
        (start, start),
        (start, start + timedelta(days=367)),
        (start.replace(tzinfo=None), start.replace(tzinfo=None) + timedelta(days=1)),
    ]:
        with pytest.raises(InvalidSetting):
            Horizon(first, last)
