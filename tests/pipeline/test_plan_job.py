from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from godwit.core.clock import ManualClock, to_ms
from godwit.core.errors import InvalidSetting, PlanTooDense
from godwit.core.messages.message import Message
from godwit.core.schedule.schedules import Firing, campaign_id
from godwit.pipeline.campaign.definition import Campaign, Horizon, QuietHours
from godwit.pipeline.campaign.plan_writer import message_batch, message_template
from godwit.pipeline.jobs.plan import PlanResult, PlanSettings, plan_in_session
from godwit.store.plans import Applied
from godwit.store.urls import connect
from tests.store.conformance.harness import BACKENDS, harness_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

User = tuple[str, str, str, str]
NOW = ManualClock(to_ms(datetime(2026, 4, 30, tzinfo=UTC)))
USERS: list[User] = [
    ("ada", "Europe/London", "1990-05-02", "Ada"),
    ("bob", "America/New_York", "1991-05-03", "Bob"),
    ("cyd", "Asia/Tokyo", "1992-05-04", "Cyd"),
    ("dan", "Mars/Olympus", "1992-05-04", "Dan"),
    ("eve", "Asia/Tokyo", "1992-12-04", "Eve"),
]


class Planner:
    """A table of users and a store, planned as often as a test likes."""

    def __init__(self, spark: SparkSession, folder: Path, url: str) -> None:
        self.spark, self.folder, self.url = spark, folder, url

    def plan(
        self, users: list[User], *, dry_run: bool = False, first: date = date(2026, 5, 1), **campaign: Any
    ) -> PlanResult:
        rows = [json.dumps(dict(zip(("user_id", "timezone", "born", "name"), user, strict=True))) for user in users]
        file = self.folder / "users.jsonl"
        file.write_text("\n".join(rows))
        settings = PlanSettings(
            campaign=Campaign(
                **{
                    "name": "birthdays",
                    "queue": "birthdays",
                    "type": "birthday",
                    "date_column": "born",
                    "local_time": time(9),
                    "payload_columns": ("name",),
                    **campaign,
                }
            ),
            horizon=Horizon.from_days(first),
            users=str(file),
            rejects=str(self.folder / "rejects"),
            store_url=self.url,
            dry_run=dry_run,
        )
        return plan_in_session(self.spark, settings, clock=NOW)

    def firings(self) -> dict[str | None, Firing]:
        async def look() -> dict[str | None, Firing]:
            async with connect(self.url) as store:
                return {one.key: one for one in await store.schedules.upcoming()}

        return asyncio.run(look())

    def message(self, key: str) -> Message:
        async def look() -> Firing | None:
            async with connect(self.url) as store:
                return await store.schedules.find(campaign_id("birthdays", key))

        found = asyncio.run(look())
        assert found is not None
        return msgspec.json.decode(found.message, type=Message)


@pytest.fixture(params=BACKENDS)
def planner(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Planner]:
    with harness_of(request.param, tmp_path) as store:
        yield Planner(spark, tmp_path, store.url)


def test_a_plan_reaches_the_store_and_planning_again_follows_the_users(planner: Planner) -> None:
    first = planner.plan(USERS)
    assert first == PlanResult(
        planned=3,
        rejected=1,
        reasons={"unknown time zone Mars/Olympus": 1},
        applied=Applied(added=3, moved=0, cancelled=0),
    )
    assert {key: one.deliver_at for key, one in planner.firings().items()} == {
        "ada/2026-05-02": datetime(2026, 5, 2, 8, tzinfo=UTC),
        "bob/2026-05-03": datetime(2026, 5, 3, 13, tzinfo=UTC),
        "cyd/2026-05-04": datetime(2026, 5, 4, 0, tzinfo=UTC),
    }
    message = planner.message("ada/2026-05-02")
    assert (message.queue, message.type) == ("birthdays", "birthday")
    assert message.payload == {"user": "ada", "occurrence": "2026-05-02", "name": "Ada"}
    assert planner.spark.read.parquet(str(planner.folder / "rejects")).collect()[0]["user"] == "dan"

    assert planner.plan(USERS).applied == Applied(added=0, moved=0, cancelled=0)
    moved = [("ada", "Asia/Tokyo", "1990-05-02", "Ada"), USERS[1], ("fay", "UTC", "1990-05-05", "Fay")]
    assert planner.plan(moved).applied == Applied(added=1, moved=1, cancelled=1)
    assert set(planner.firings()) == {"ada/2026-05-02", "bob/2026-05-03", "fay/2026-05-05"}
    assert planner.firings()["ada/2026-05-02"].deliver_at == datetime(2026, 5, 2, 0, tzinfo=UTC)


def test_a_plan_that_is_too_dense_or_dry_changes_nothing(planner: Planner) -> None:
    crowd: list[User] = [(f"u{number}", "UTC", "1990-05-05", "U") for number in range(20)]
    with pytest.raises(PlanTooDense) as caught:
        planner.plan(crowd, max_per_minute=10)
    assert (caught.value.found, caught.value.minute) == (20, "2026-05-05 09:00 UTC")
    assert planner.plan(crowd, dry_run=True) == PlanResult(planned=20, rejected=0, reasons={}, applied=None)
    with pytest.raises(InvalidSetting, match="joined"):
        planner.plan(crowd, date_column="joined")
    assert planner.firings() == {}


@pytest.mark.parametrize("odd", ["", 'quo"te', "back\\slash", "new\nline", "\x1f\x7f", "é\u2028😀"])
def test_messages_made_of_columns_are_those_made_one_by_one(odd: str) -> None:
    users, chosen = [f"u{odd}", "plain"], ['{"name":"Zoë"}', "{}"]
    batch = pa.record_batch(
        {
            "user": users,
            "occurrence": pa.array([date(2026, 5, 2), date(999, 1, 1)], pa.date32()),
            "deliver_at": pa.array([datetime(2026, 5, 2, tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")),
            "payload": chosen,
        }
    )
    campaign = Campaign(name="b", queue="q", type="t", date_column="born", local_time=time(9))
    for rows in (batch, batch.slice(1)):
        made = message_batch(rows, campaign.name, message_template(campaign))
        bodies = made.column("message").to_pylist()
        payloads = [msgspec.json.decode(body, type=Message).payload for body in bodies]
        wanted = zip(rows["user"].to_pylist(), rows["occurrence"].to_pylist(), rows["payload"].to_pylist(), strict=True)
        assert payloads == [
            {"user": user, "occurrence": day.isoformat(), **json.loads(more)} for user, day, more in wanted
        ]
        assert [msgspec.json.encode(msgspec.json.decode(body)) for body in bodies] == bodies
        keys = [f"{row['user']}/{row['occurrence']}" for row in rows.to_pylist()]
        assert made.column("key").to_pylist() == keys
        assert made.column("id").to_pylist() == [str(campaign_id("b", key)) for key in keys]


def test_many_reasons_are_counted_without_the_value_of_every_user(spark: SparkSession, tmp_path: Path) -> None:
    users = [(f"u{number}", f"Mars/{number}", "1990-05-02", "x") for number in range(150)]
    users += [(f"d{number}", "Asia/Tokyo", f"day {number}", "x") for number in range(150)]
    users += [("zero\0", "Asia/Tokyo", "1990-05-02", "x"), ("big", "Asia/Tokyo", "1990-05-02", "x" * 11_000_000)]
    result = Planner(spark, tmp_path, "").plan(users, dry_run=True)
    assert (result.planned, result.rejected, len(result.reasons)) == (0, 302, 101)
    assert (result.reasons["not a date"], result.reasons["other reasons"]) == (150, 302 - 150 - 99)


def test_of_a_user_listed_twice_the_row_that_is_due_first_counts(spark: SparkSession, tmp_path: Path) -> None:
    planner = Planner(spark, tmp_path, f"sqlite:///{tmp_path / 'store.db'}")
    rows: list[User] = [
        ("ada", zone, "1990-05-02", zone) for zone in ("America/New_York", "Asia/Tokyo", "Europe/Paris")
    ]
    assert planner.plan(rows).applied == Applied(added=1, moved=0, cancelled=0)
    assert planner.message("ada/2026-05-02").payload["name"] == "Asia/Tokyo"
    assert planner.plan(rows[::-1]).applied == Applied(added=0, moved=0, cancelled=0)


@pytest.mark.parametrize("name", ["user", "occurrence"])
def test_a_payload_column_cannot_take_the_place_of_the_user(name: str) -> None:
    with pytest.raises(InvalidSetting, match="payload"):
        Campaign(name="b", queue="b", type="b", date_column="born", local_time=time(9), payload_columns=("name", name))


def test_a_wide_window_behind_quiet_hours_in_the_far_west_is_planned_again_until_it_is_due(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Planning on later days finds the messages that were planned earlier, as long as they are not due."""
    planner = Planner(spark, tmp_path, f"sqlite:///{tmp_path / 'store.db'}")
    users: list[User] = [(f"u{number}", "Etc/GMT+12", "1990-05-02", "x") for number in range(40)]
    wide: dict[str, Any] = {
        "local_time": time(23, 30),
        "window": timedelta(hours=11),
        "quiet_hours": QuietHours(time(22), time(10)),
    }
    first = planner.plan(users, **wide)
    assert first.planned == 40
    for day in (3, 4, 5):
        again = planner.plan(users, first=date(2026, 5, day), **wide)
        assert again.applied is not None
        assert (again.applied.added, again.applied.moved, again.applied.cancelled) == (0, 0, 0), day


def test_a_horizon_beyond_the_last_instant_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="start"):
        Horizon.from_days(date(9999, 12, 31))
