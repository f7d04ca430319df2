"""The tables of a report: each a small result of one pass over journal rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from godwit.core.journal.lifecycle import ARRIVALS, DEATHS
from godwit.core.journal.vocabulary import Event

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PERCENTILES: Final = (0.5, 0.95, 0.99)
ACCURACY: Final = 10_000
COLUMNS: Final = (
    "shard", "seq", "at", "event", "queue", "group", "worker", "depth", "copy", "publish_seq", "attempt", "failures",
    "ready_at", "deliver_at", "lease_until", "wait_ms", "run_ms", "error_kind", "error_fingerprint", "schedule_id",
)  # fmt: skip
"""The journal columns that a report reads."""

_GROUP: Final = ("queue", "group")
_FAILED: Final = (Event.NACKED, Event.LEASE_EXPIRED, *DEATHS)


def is_event(*events: Event) -> Column:
    """Say whether a row is one of these events."""
    return F.col("event").isin(*(event.value for event in events))


def count_events(*events: Event) -> Column:
    """Count the rows that are one of these events."""
    return F.count_if(is_event(*events))


def _percentiles(value: str, event: Event, name: str) -> list[Column]:
    percentiles = F.percentile_approx(F.when(is_event(event), F.col(value)), list(PERCENTILES), ACCURACY)
    return [percentiles[at].alias(f"{name}_p{round(share * 100)}") for at, share in enumerate(PERCENTILES)]


def groups(rows: DataFrame) -> DataFrame:
    """Return one row per queue and group: arrivals, outcomes, durations; counted as `queue_analytics` counts them."""
    return (
        rows.where(F.col("group").isNotNull())
        .groupBy(*_GROUP)
        .agg(
            count_events(*ARRIVALS).alias("enqueued"),
            count_events(Event.DELIVERED).alias("delivered"),
            count_events(Event.ACKED).alias("processed"),
            count_events(Event.DEAD_LETTERED).alias("failed"),
            count_events(Event.MESSAGE_EXPIRED).alias("expired"),
            count_events(Event.NACKED).alias("retries"),
            count_events(Event.LEASE_EXPIRED).alias("leases_expired"),
            count_events(Event.ACK_REFUSED).alias("acks_refused"),
            count_events(Event.HANDED_BACK).alias("handed_back"),
            *_percentiles("wait_ms", Event.DELIVERED, "wait"),
            *_percentiles("run_ms", Event.ACKED, "run"),
            F.max("wait_ms").alias("wait_max"),
            F.min("at").alias("first_at"),
            F.max("at").alias("last_at"),
        )
        .join(peak_depths(rows), list(_GROUP), "left")
        .orderBy(*_GROUP)
    )


def peak_depths(rows: DataFrame) -> DataFrame:
    """Return the greatest depth of each group over all partitions of its queue, to the second: `peak_depth`.

    A row knows the depth of its own partition. Between its rows a partition keeps its last depth; within a second all
    partitions may be deepest at once.
    """
    second = F.floor(F.unix_millis("at") / 1_000).alias("second")
    seen = rows.where(F.col("group").isNotNull() & F.col("depth").isNotNull()).groupBy(*_GROUP, "shard", second)
    deepest = seen.agg(F.max("depth").alias("top"), F.max_by("depth", F.struct("at", "seq")).alias("last"))
    before = F.coalesce(F.lag("last").over(Window.partitionBy(*_GROUP, "shard").orderBy("second")), F.lit(0))
    changes = (
        deepest.withColumn("before", before)
        .groupBy(*_GROUP, "second")
        .agg(
            F.sum(F.col("last") - F.col("before")).alias("change"),
            F.sum(F.greatest("top", "before") - F.col("before")).alias("rise"),
        )
    )
    so_far = Window.partitionBy(*_GROUP).orderBy("second").rowsBetween(Window.unboundedPreceding, -1)
    depth = F.coalesce(F.sum("change").over(so_far), F.lit(0)) + F.col("rise")
    return changes.withColumn("depth", depth).groupBy(*_GROUP).agg(F.max("depth").cast("int").alias("peak_depth"))


def timeline(rows: DataFrame, bucket_seconds: int) -> DataFrame:
    """Return one row per time step: arrivals, outcomes, failures, and the greatest depth of any group."""
    start = F.timestamp_seconds(F.floor(F.unix_seconds("at") / bucket_seconds) * bucket_seconds)
    return (
        rows.where(F.col("group").isNotNull())
        .groupBy(start.alias("start"))
        .agg(
            count_events(*ARRIVALS).alias("enqueued"),
            count_events(Event.ACKED).alias("processed"),
            count_events(*_FAILED).alias("failed"),
            F.max("depth").alias("depth"),
            F.percentile_approx("wait_ms", 0.95, ACCURACY).alias("wait_p95"),
            F.percentile_approx(F.when(is_event(Event.ACKED), F.col("run_ms")), 0.95, ACCURACY).alias("run_p95"),
        )
        .orderBy("start")
    )


def patterns(rows: DataFrame, limit: int) -> DataFrame:
    """Return the failures with equal fingerprints, most frequent first."""
    return (
        rows.where(is_event(*_FAILED) & F.col("error_fingerprint").isNotNull())
        .groupBy("error_fingerprint", "error_kind")
        .agg(
            F.count("*").alias("failures"),
            count_events(Event.DEAD_LETTERED).alias("given_up"),
            F.sort_array(F.collect_set("queue")).alias("queues"),
            F.min("at").alias("first_at"),
            F.max("at").alias("last_at"),
        )
        .orderBy(F.col("failures").desc(), "error_fingerprint")
        .limit(limit)
    )


def attempts(rows: DataFrame) -> DataFrame:
    """Return, per group and number of earlier failures, how the next attempt ended."""
    before = F.col("failures") - F.when(is_event(Event.NACKED, Event.DEAD_LETTERED), 1).otherwise(0)
    return (
        rows.where(is_event(Event.ACKED, Event.NACKED, Event.DEAD_LETTERED) & F.col("failures").isNotNull())
        .groupBy(*_GROUP, F.greatest(before, F.lit(0)).cast("int").alias("earlier_failures"))
        .agg(
            count_events(Event.ACKED).alias("succeeded"),
            count_events(Event.NACKED, Event.DEAD_LETTERED).alias("failed"),
            F.coalesce(F.sum("run_ms"), F.lit(0)).alias("run_ms"),
        )
        .orderBy(*_GROUP, "earlier_failures")
    )


def schedules(rows: DataFrame) -> DataFrame:
    """Return how late scheduled messages were first delivered, per queue and group."""
    copy = ["shard", "group", "publish_seq"]
    due = rows.where(is_event(Event.SCHEDULED) & F.col("deliver_at").isNotNull()).select(
        *copy, "queue", "deliver_at", "schedule_id"
    )
    first = rows.where(is_event(Event.DELIVERED) & (F.col("attempt") == 1)).select(*copy, F.col("at").alias("shown_at"))
    late = (F.unix_millis("shown_at") - F.unix_millis("deliver_at")).alias("late_ms")
    measured = due.join(first, copy).select("queue", "group", "schedule_id", "deliver_at", late)
    percentiles = F.percentile_approx("late_ms", list(PERCENTILES), ACCURACY)
    per_minute = F.count("*").over(Window.partitionBy(*_GROUP, F.date_trunc("minute", "deliver_at")))
    return (
        measured.withColumn("together", per_minute)
        .groupBy(*_GROUP)
        .agg(
            F.count("*").alias("messages"),
            F.count_if(F.col("late_ms") < 0).alias("early"),
            *(percentiles[at].alias(f"late_p{round(share * 100)}") for at, share in enumerate(PERCENTILES)),
            F.max("late_ms").alias("late_max"),
            F.max("together").alias("most_in_a_minute"),
            F.max_by(F.date_trunc("minute", "deliver_at"), "together").alias("fullest_minute"),
        )
        .orderBy(*_GROUP)
    )


def workers(rows: DataFrame) -> DataFrame:
    """Return what every worker of every group did."""
    return (
        rows.where(F.col("worker").isNotNull() & is_event(Event.DELIVERED, Event.ACKED, Event.NACKED))
        .groupBy(*_GROUP, "worker")
        .agg(
            count_events(Event.DELIVERED).alias("delivered"),
            count_events(Event.ACKED).alias("processed"),
            F.coalesce(F.sum("run_ms"), F.lit(0)).alias("busy_ms"),
        )
        .orderBy(*_GROUP, "worker")
    )


def trace(rows: DataFrame, queue: str, group: str, limit: int) -> DataFrame:
    """Return the first deliveries of a group as a queueing trace: when ready, how long each ran and waited."""
    mine = rows.where((F.col("queue") == queue) & (F.col("group") == group))
    copy = ["shard", "publish_seq"]
    begun = mine.where(is_event(Event.DELIVERED) & (F.col("attempt") == 1)).select(
        *copy, (F.unix_millis("at") - F.col("wait_ms")).alias("ready_ms"), "wait_ms", F.unix_millis("at").alias("at_ms")
    )
    ended = mine.where(is_event(Event.ACKED) & (F.col("attempt") == 1)).select(
        *copy, F.coalesce("run_ms", F.lit(0)).alias("run_ms"), F.unix_millis("at").alias("end_ms")
    )
    return begun.join(ended, copy).orderBy("ready_ms", "publish_seq").limit(limit)
