"""Plans the messages of users within a horizon, in whole seconds, so that the session's zone does not matter.

Both results come from one table of users: `plan_messages` has a row per message, `rejected_users` a row per user that
cannot be planned, with the reason. Expressions are SQL: a column composed of functions needs a call of the JVM for
each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from godwit.core.messages.checks import MAX_MESSAGE_BYTES
from godwit.pipeline.campaign.definition import Campaign, Horizon, celebrations, seconds_of
from godwit.pipeline.campaign.zone_clocks import clocks, zones
from godwit.pipeline.transforms.ids import campaign_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_USER_CHARACTERS: Final = 200
MAX_PAYLOAD_BYTES: Final = MAX_MESSAGE_BYTES - 8_192
"""The rest of a message is its user, escaped, and what is the same for all."""
_DAY: Final = 86_400
_NO_PAYLOAD: Final = "'{}'"


def plan_candidates(users: DataFrame, campaign: Campaign) -> DataFrame:
    """Return users as a plan needs them (`user`, `zone`, `born`, `payload`), with a `reason` against each or null."""
    given = _quoted(campaign.date_column)
    is_date = dict(users.dtypes)[campaign.date_column] == "date"
    born = given if is_date else _as_date(f"CAST({given} AS STRING)")
    payload = ", ".join(map(_quoted, campaign.payload_columns))
    return users.selectExpr(
        f"CAST({_quoted(campaign.user_column)} AS STRING) AS user",
        f"CAST({_quoted(campaign.zone_column)} AS STRING) AS zone",
        f"{born} AS born",
        f"CAST({given} AS STRING) AS given",
        f"{f'to_json(struct({payload}))' if payload else _NO_PAYLOAD} AS payload",
    ).selectExpr("*", f"{_reason()} AS reason")


def _quoted(column: str) -> str:
    return f"`{column.replace('`', '``')}`"


def _as_date(text: str) -> str:
    # A cast reads a date five times as fast as a format does, and takes more than dates for one: spaces around them,
    # times behind them, days and months of one digit. None of those has these characters in these places.
    return (
        f"CASE WHEN length({text}) = 10 AND substr({text}, 5, 1) = '-' AND substr({text}, 8, 1) = '-'"
        f" AND substr({text}, 10, 1) >= '0' AND substr({text}, 10, 1) <= '9' THEN try_cast({text} AS DATE) END"
    )


def _reason() -> str:
    known = ", ".join(f"'{zone}'" for zone in zones())
    return f"""CASE
        WHEN user IS NULL OR length(user) = 0 THEN 'no user id'
        WHEN length(user) > {MAX_USER_CHARACTERS} THEN 'a user id longer than {MAX_USER_CHARACTERS} characters'
        WHEN instr(user, char(0)) > 0 THEN 'a user id with a NUL character'
        WHEN octet_length(payload) > {MAX_PAYLOAD_BYTES} THEN 'a payload of more than {MAX_PAYLOAD_BYTES:,} bytes'
        WHEN zone IS NULL THEN 'no time zone'
        WHEN zone NOT IN ({known}) THEN concat('unknown time zone ', zone)
        WHEN given IS NULL THEN 'no date'
        WHEN born IS NULL THEN concat('not a date: ', substr(given, 1, 40))
    END"""


def rejected_users(candidates: DataFrame) -> DataFrame:
    """Return the users that cannot be planned, and why."""
    return candidates.where(F.col("reason").isNotNull()).select("user", "zone", F.col("given").alias("date"), "reason")


def plan_messages(candidates: DataFrame, campaign: Campaign, horizon: Horizon) -> DataFrame:
    """Return one row per message: `message_id, key, user, occurrence, deliver_at, payload`.

    The id is that of the campaign's message with this key, as `core.schedule.campaign_id` makes it.
    """
    births = celebrations(horizon, campaign)
    hands, offset = _clocks(candidates, horizon)
    start, end = int(horizon.start.timestamp()), int(horizon.end.timestamp())
    within = (
        candidates.where(f"{_celebrated_soon(births)} AND reason IS NULL")
        .selectExpr("user", "zone", "payload", "month(born) * 100 + dayofmonth(born) AS birthday")
        .join(F.broadcast(_occurrences(candidates, births)), "birthday")
        .join(F.broadcast(hands), "zone")
        .selectExpr("*", f"{_local_time(campaign)} AS shown")
        .selectExpr("user", "occurrence", f"shown - {offset} AS instant", "payload")
        .where(f"instant >= {start} AND instant < {end}")
    )
    key = "concat(user, '/', CAST(occurrence AS STRING))"
    return _without_duplicates(within).selectExpr(
        f"{campaign_id(campaign.name, key)} AS message_id",
        f"{key} AS key",
        "user",
        "occurrence",
        "timestamp_seconds(instant) AS deliver_at",
        "payload",
    )


def _celebrated_soon(births: Iterable[tuple[int, date]]) -> str:
    """Select dates celebrated within the horizon by their last characters, which excludes most users at once."""
    ends = sorted({f"'{birthday // 100:02}-{birthday % 100:02}'" for birthday, _ in births})
    return f"substr(given, -5, 5) IN ({', '.join(ends)})"


def _without_duplicates(messages: DataFrame) -> DataFrame:
    """Return one message of a user for each occurrence: of a user listed several times, the one that is due first.

    The rows are partitioned by user first: Spark then sorts once to find duplicates, before ids are made.
    """
    first = F.min(F.struct("instant", "payload")).alias("first")
    return messages.repartition("user").groupBy("user", "occurrence").agg(first).select("user", "occurrence", "first.*")


def _occurrences(candidates: DataFrame, births: Iterable[tuple[int, date]]) -> DataFrame:
    birthdays, days = zip(*births, strict=True)
    return _table(candidates, {"birthday": pa.array(birthdays, pa.int32()), "occurrence": pa.array(days, pa.date32())})


def _local_time(campaign: Campaign) -> str:
    """Return the local time of a delivery: the campaign's time, spread, and moved out of quiet hours."""
    window = int(campaign.window.total_seconds())
    spread = f"pmod(xxhash64(user), {window})" if window else "0"
    midnight = f"CAST(unix_date(occurrence) AS LONG) * {_DAY}"
    wanted = f"({midnight} + {seconds_of(campaign.local_time)} + {spread})"
    if campaign.quiet_hours is None:
        return wanted
    start, length = seconds_of(campaign.quiet_hours.start), int(campaign.quiet_hours.length.total_seconds())
    into = f"pmod({wanted} - {start}, {_DAY})"
    return f"CASE WHEN {into} < {length} THEN {wanted} - {into} + {length} + {spread} ELSE {wanted} END"


def _clocks(candidates: DataFrame, horizon: Horizon) -> tuple[DataFrame, str]:
    """Return the offsets of every zone as columns, and the expression that selects the one for a local time."""
    hands = clocks(horizon)
    changes = max(len(clock.untils) for clock in hands)
    columns: dict[str, list[Any]] = {"zone": [clock.zone for clock in hands]}
    for at in range(changes + 1):
        columns[f"offset_{at}"] = [clock.offsets[at] if at < len(clock.offsets) else None for clock in hands]
    for at in range(changes):
        columns[f"until_{at}"] = [clock.untils[at] if at < len(clock.untils) else None for clock in hands]
    later = "".join(f" WHEN shown >= until_{at} THEN offset_{at + 1}" for at in reversed(range(changes)))
    return _table(candidates, columns), f"CASE{later} ELSE offset_0 END" if changes else "offset_0"


def crowded_minutes(plan: DataFrame, campaign: Campaign) -> DataFrame:
    """Return the minutes with more messages than the campaign allows, fullest first: `minute, messages`."""
    minute = F.timestamp_seconds(F.floor(F.unix_timestamp("deliver_at") / 60) * 60)
    counted = plan.groupBy(minute.alias("minute")).agg(F.count("*").alias("messages"))
    if campaign.max_per_minute is None:
        return counted.limit(0)
    return counted.where(F.col("messages") > campaign.max_per_minute).orderBy(F.col("messages").desc(), "minute")


def _table(beside: DataFrame, columns: Mapping[str, Any]) -> DataFrame:
    """Return a small table; made from Arrow it is part of the plan, and Spark needs no job to read it."""
    return beside.sparkSession.createDataFrame(pa.table(dict(columns)))
