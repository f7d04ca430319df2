"""From journal rows to numbers that add up.

A batch is reduced to partials by shard, minute, group and histogram bucket; minutes, days and percentiles of any span
are sums of partials, in any order and however late. Nothing here waits for time to pass.

Percentiles come from buckets whose bounds grow by 2 %: a value read from its bucket is at most 1 % off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from godwit.core.journal import Event

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GAMMA: Final = 1.02
NOTHING: Final = -1
"""The bucket of values below one."""
PROCESSING: Final = "processing_ms"
WAITING: Final = "wait_ms"
COLUMNS: Final = ("epoch", "shard", "seq", "at", "event", "queue", "group", "depth", "copy", "wait_ms", "run_ms")
"""What analytics reads of a journal."""
KEYS: Final = ("shard", "epoch", "queue", "minute", "group", "metric", "bucket")
_ARRIVALS: Final = (Event.ENQUEUED, Event.SCHEDULED)


def bucket(value: Column) -> Column:
    """Return the histogram bucket of a value: n for values above GAMMA**(n-1) and up to GAMMA**n."""
    return F.when(value < 1, NOTHING).otherwise(F.ceil(F.log(value.cast("double")) / math.log(GAMMA)).cast("int"))


def value_of(bucket: int) -> float:
    """Return the value that is at most 1 % away from everything in a bucket."""
    return 0.0 if bucket == NOTHING else 2 * GAMMA**bucket / (1 + GAMMA)


def percentile(counts: Mapping[int, int], share: float) -> float:
    """Return the value below which `share` (0 to 1) of the counted values lie; 0 when there are none."""
    left = math.ceil(sum(counts.values()) * share)
    for number in sorted(counts):
        left -= counts[number]
        if left <= 0:
            return value_of(number)
    return 0.0


def partials(rows: DataFrame) -> DataFrame:
    """Reduce rows to sums by `KEYS`; `minute` in milliseconds, `metric` and `bucket` null for what has no duration.

    `n`, `first_seq`, `last_seq` and `seq_sum` tell whether rows are missing or doubled.
    """
    value = F.when(F.col("event") == Event.ACKED, F.col("run_ms")).when(
        F.col("event") == Event.DELIVERED, F.col("wait_ms")
    )
    metric = F.when(F.col("event") == Event.ACKED, PROCESSING).otherwise(WAITING)
    told = rows.select(
        *("shard", "epoch", "queue", "group", "seq", "event", "depth", "copy"),
        F.unix_millis("at").alias("at_ms"),
        value.alias("value"),
    )
    told = told.select(
        *told.columns,
        F.expr("at_ms div 60000 * 60000").alias("minute"),
        F.when(F.col("value").isNotNull(), metric).alias("metric"),
        bucket(F.col("value")).alias("bucket"),
    )
    return told.groupBy(*KEYS).agg(
        F.count("*").alias("n"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.sum("seq").alias("seq_sum"),
        F.max("at_ms").alias("last_at_ms"),
        _counted(F.col("event").isin(*_ARRIVALS)).alias("enqueued"),
        _counted(F.col("event").isin(*_ARRIVALS) & (F.col("copy") == 0)).alias("originals"),
        _counted(F.col("event") == Event.ACKED).alias("processed"),
        _counted(F.col("event") == Event.DEAD_LETTERED).alias("failed"),
        _counted(F.col("event") == Event.NACKED).alias("retried"),
        _counted(F.col("event") == Event.MESSAGE_EXPIRED).alias("expired"),
        _counted(F.col("event") == Event.DELIVERED).alias("delivered"),
        F.coalesce(F.sum("value"), F.lit(0)).alias("value_sum"),
        F.coalesce(F.max("depth"), F.lit(0)).alias("peak"),
    )


def _counted(condition: Column) -> Column:
    return F.count_if(condition)
