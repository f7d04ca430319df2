"""Reduces journal rows to sums that add up.

A batch is reduced to partial sums by shard, minute, group and histogram bucket; minutes, days and percentiles of any
period are sums of those, in any order and however late. Nothing here waits for time to pass.

Percentiles come from buckets whose bounds grow by 2 %: a value read from its bucket is at most 1 % off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from godwit.core.journal.lifecycle import ARRIVALS
from godwit.core.journal.vocabulary import Event

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GAMMA: Final = 1.02
NOTHING: Final = -1
"""The bucket of values below one."""
PROCESSING: Final = "processing_ms"
WAITING: Final = "wait_ms"
COLUMNS: Final = ("epoch", "shard", "seq", "at", "event", "queue", "group", "depth", "copy", "wait_ms", "run_ms")
"""The journal columns that analytics reads."""
KEYS: Final = ("shard", "epoch", "queue", "minute", "group", "metric", "bucket")
MINUTE_MS: Final = 60_000
COUNTED: Final = {
    "processed": Event.ACKED,
    "failed": Event.DEAD_LETTERED,
    "retried": Event.NACKED,
    "expired": Event.MESSAGE_EXPIRED,
    "delivered": Event.DELIVERED,
}
DURATIONS: Final = {Event.ACKED: (PROCESSING, "run_ms"), Event.DELIVERED: (WAITING, "wait_ms")}
"""By event: the metric of its duration, and the column with the duration."""


def bucket(value: Column) -> Column:
    """Return the histogram bucket of a value: n for values above GAMMA**(n-1) and up to GAMMA**n."""
    return F.when(value < 1, NOTHING).otherwise(F.ceil(F.log(value.cast("double")) / math.log(GAMMA)).cast("int"))


def value_of(bucket: int) -> float:
    """Return the value that is at most 1 % away from every value in a bucket."""
    return 0.0 if bucket == NOTHING else 2 * GAMMA**bucket / (1 + GAMMA)


def percentile(counts: Mapping[int, int], share: float) -> float:
    """Return the value below which `share` (0 to 1) of the counted values lie; 0 without any."""
    left = math.ceil(sum(counts.values()) * share)
    for number in sorted(counts):
        left -= counts[number]
        if left <= 0:
            return value_of(number)
    return 0.0


def partials(rows: DataFrame) -> DataFrame:
    """Reduce rows to sums by `KEYS`; `minute` in milliseconds, `metric` and `bucket` null for rows without a duration.

    `n`, `first_seq`, `last_seq` and `seq_sum` show whether rows are missing or doubled.
    """
    value, metric = F.lit(None).cast("long"), F.lit(None).cast("string")
    for event, (name, column) in DURATIONS.items():
        value = F.when(F.col("event") == event, F.col(column)).otherwise(value)
        metric = F.when(F.col("event") == event, name).otherwise(metric)
    values = rows.select(
        *("shard", "epoch", "queue", "group", "seq", "event", "depth", "copy"),
        F.unix_millis("at").alias("at_ms"),
        value.alias("value"),
    )
    values = values.select(
        *values.columns,
        F.expr(f"at_ms div {MINUTE_MS} * {MINUTE_MS}").alias("minute"),
        F.when(F.col("value").isNotNull(), metric).alias("metric"),
        bucket(F.col("value")).alias("bucket"),
    )
    return values.groupBy(*KEYS).agg(
        F.count("*").alias("n"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.sum("seq").alias("seq_sum"),
        F.max("at_ms").alias("last_at_ms"),
        F.count_if(F.col("event").isin(*ARRIVALS)).alias("enqueued"),
        F.count_if(F.col("event").isin(*ARRIVALS) & (F.col("copy") == 0)).alias("originals"),
        *(F.count_if(F.col("event") == event).alias(name) for name, event in COUNTED.items()),
        F.coalesce(F.sum("value"), F.lit(0)).alias("value_sum"),
        F.coalesce(F.max("depth"), F.lit(0)).alias("peak"),
    )
