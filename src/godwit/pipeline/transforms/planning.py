"""From users to the messages they get within a horizon; whole numbers of seconds all along, so no session zone matters.

Both results come from one table of users: `planned` has a row per message, `rejected` a row per user that cannot be
planned, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from godwit.pipeline.campaigns import Campaign, Horizon, celebrations, seconds_of
from godwit.pipeline.transforms.ids import campaign_id
from godwit.pipeline.zones import clocks, zones

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MAX_USER_CHARACTERS: Final = 200
_DAY: Final = 86_400


def checked(users: DataFrame, campaign: Campaign) -> DataFrame:
    """Return users as a plan needs them (`user`, `zone`, `born`, `payload`), with the `reason` against each or null."""
    payload = [F.col(column) for column in campaign.payload_columns]
    shaped = users.select(
        F.col(campaign.user_column).cast("string").alias("user"),
        F.col(campaign.zone_column).cast("string").alias("zone"),
        _day(users, campaign.date_column).alias("born"),
        F.col(campaign.date_column).cast("string").alias("given"),
        (F.to_json(F.struct(*payload)) if payload else F.lit("{}")).alias("payload"),
    )
    return shaped.withColumn("reason", _reason())


def _day(users: DataFrame, column: str) -> Column:
    if dict(users.dtypes)[column] == "date":
        return F.col(column)
    text = F.col(column).cast("string")
    # A cast reads a date five times as fast as a format does, and takes more than dates for one: spaces around them,
    # times behind them, days and months of one digit. None of those has these characters in these places.
    shape = (F.length(text) == 10) & (F.substring(text, 5, 1) == "-") & (F.substring(text, 8, 1) == "-")  # noqa: PLR2004
    return F.when(shape & F.substring(text, 10, 1).between("0", "9"), text.try_cast("date"))


def _known_zone() -> Column:
    # One text: a column for each of the names takes longer to make than thousands of users take to be looked up.
    return F.expr(f"zone IN ({', '.join(repr(zone) for zone in zones())})")


def _reason() -> Column:
    length = F.length("user")
    return (
        F.when(F.col("user").isNull() | (length == 0), "no user id")
        .when(length > MAX_USER_CHARACTERS, f"a user id longer than {MAX_USER_CHARACTERS} characters")
        .when(F.col("zone").isNull(), "no time zone")
        .when(~_known_zone(), F.concat(F.lit("unknown time zone "), F.col("zone")))
        .when(F.col("given").isNull(), "no date")
        .when(F.col("born").isNull(), F.concat(F.lit("not a date: "), F.substring("given", 1, 40)))
    )


def rejected(candidates: DataFrame) -> DataFrame:
    """Return the users that cannot be planned, and why."""
    return candidates.where(F.col("reason").isNotNull()).select("user", "zone", F.col("given").alias("date"), "reason")


def planned(candidates: DataFrame, campaign: Campaign, horizon: Horizon) -> DataFrame:
    """Return one row per message: `message_id, key, user, occurrence, deliver_at, payload`.

    The id is that of the campaign's message with this key, as `core.schedule.campaign_id` makes it.
    """
    due = (
        candidates.where(_soon(campaign, horizon))
        .where(F.col("reason").isNull())
        .withColumn("birthday", F.month("born") * 100 + F.dayofmonth("born"))
        .join(F.broadcast(_occurrences(candidates, campaign, horizon)), "birthday")
    )
    hands, offset = _clocks(candidates, horizon)
    local = _shown(campaign)
    instants = (
        due.join(F.broadcast(hands), "zone")
        .withColumn("shown", local)
        .withColumn("instant", F.col("shown") - offset(F.col("shown")))
    )
    start, end = int(horizon.start.timestamp()), int(horizon.end.timestamp())
    within = instants.where((F.col("instant") >= start) & (F.col("instant") < end))
    key = F.concat("user", F.lit("/"), F.col("occurrence").cast("string"))
    return _once(within).select(
        campaign_id(campaign.name, key).alias("message_id"),
        key.alias("key"),
        "user",
        "occurrence",
        F.timestamp_seconds("instant").alias("deliver_at"),
        "payload",
    )


def _soon(campaign: Campaign, horizon: Horizon) -> Column:
    """Say by its last characters whether a date is celebrated within the horizon: most users are done with that."""
    births = {f"{birthday // 100:02}-{birthday % 100:02}" for birthday, _ in celebrations(horizon, campaign.leap)}
    return F.substring("given", -5, 5).isin(sorted(births))


def _once(messages: DataFrame) -> DataFrame:
    """Return the messages of users who are there twice once.

    By user first: Spark then sorts once to find who is there twice, before ids are made, and not twice behind it.
    """
    wanted = messages.select("user", "occurrence", "instant", "payload")
    return wanted.repartition("user").dropDuplicates(["user", "occurrence"])


def _occurrences(candidates: DataFrame, campaign: Campaign, horizon: Horizon) -> DataFrame:
    births, days = zip(*celebrations(horizon, campaign.leap), strict=True)
    return _table(candidates, {"birthday": pa.array(births, pa.int32()), "occurrence": pa.array(days, pa.date32())})


def _shown(campaign: Campaign) -> Column:
    """Return what the user's clock shows at delivery: the campaign's time, spread, and moved out of quiet hours."""
    window = int(campaign.window.total_seconds())
    spread = F.pmod(F.xxhash64("user"), F.lit(window)) if window else F.lit(0)
    midnight = F.unix_date("occurrence").cast("long") * _DAY
    wanted = midnight + seconds_of(campaign.local_time) + spread
    if campaign.quiet_hours is None:
        return wanted
    start, length = seconds_of(campaign.quiet_hours.start), int(campaign.quiet_hours.length.total_seconds())
    into = F.pmod(wanted - start, F.lit(_DAY))
    return F.when(into < length, wanted - into + length + spread).otherwise(wanted)


def _clocks(candidates: DataFrame, horizon: Horizon) -> tuple[DataFrame, Any]:
    """Return the offsets of every zone as columns, and what picks the one for a clock time."""
    hands = clocks(horizon)
    changes = max(len(clock.untils) for clock in hands)
    columns: dict[str, list[Any]] = {"zone": [clock.zone for clock in hands]}
    for at in range(changes + 1):
        columns[f"offset_{at}"] = [clock.offsets[at] if at < len(clock.offsets) else None for clock in hands]
    for at in range(changes):
        columns[f"until_{at}"] = [clock.untils[at] if at < len(clock.untils) else None for clock in hands]

    def offset(shown: Column) -> Column:
        found = F.col("offset_0")
        for at in range(changes):
            found = F.when(shown >= F.col(f"until_{at}"), F.col(f"offset_{at + 1}")).otherwise(found)
        return found

    return _table(candidates, columns), offset


def crowded(plan: DataFrame, campaign: Campaign) -> DataFrame:
    """Return the minutes with more messages than the campaign allows, fullest first: `minute, messages`."""
    minute = F.timestamp_seconds(F.floor(F.unix_timestamp("deliver_at") / 60) * 60)
    counted = plan.groupBy(minute.alias("minute")).agg(F.count("*").alias("messages"))
    if campaign.max_per_minute is None:
        return counted.limit(0)
    return counted.where(F.col("messages") > campaign.max_per_minute).orderBy(F.col("messages").desc(), "minute")


def _table(beside: DataFrame, columns: Mapping[str, Any]) -> DataFrame:
    """Return a small table; from Arrow it is part of the plan, and Spark needs no job to read it."""
    return beside.sparkSession.createDataFrame(pa.table(dict(columns)))
