"""The tables messages and deliveries for SQL, derived from journal rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from godwit.core.journal.lifecycle import ARRIVALS, DELIVERY_ENDS
from godwit.core.journal.vocabulary import Event

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def messages(journal: DataFrame) -> DataFrame:
    """Return one row per message: its fields, and how often it was delivered and ended over all groups."""
    known = journal.where(F.col("message_id").isNotNull())
    arrived = F.col("event").isin(*ARRIVALS)
    return known.groupBy("queue", "message_id").agg(
        _first("at", arrived).alias("published_at"),
        F.max("at").alias("last_at"),
        F.max_by("event", "seq").alias("last_event"),
        _first("type", arrived).alias("type"),
        _first("priority", arrived).alias("priority"),
        _first("ordering_key", arrived).alias("ordering_key"),
        _first("deliver_at", arrived).alias("deliver_at"),
        _first("size", arrived).alias("size"),
        _first("campaign", arrived).alias("campaign"),
        _first("replay_of", arrived).alias("replay_of"),
        F.count_if(arrived).alias("copies"),
        F.count_if(F.col("event") == Event.DELIVERED).alias("deliveries"),
        F.count_if(F.col("event") == Event.ACKED).alias("acked"),
        F.count_if(F.col("event") == Event.NACKED).alias("nacked"),
        F.count_if(F.col("event") == Event.DEAD_LETTERED).alias("dead"),
        F.count_if(F.col("event") == Event.MESSAGE_EXPIRED).alias("expired"),
        F.count_if(F.col("event") == Event.CANCELLED).alias("cancelled"),
        _first("body", arrived).alias("body"),
    )


def deliveries(journal: DataFrame) -> DataFrame:
    """Return one row per delivery: when it began, how it ended, and how long it waited and ran."""
    begun = F.col("event") == Event.DELIVERED
    ended = F.col("event").isin(*DELIVERY_ENDS)
    known = journal.where(F.col("delivery_id").isNotNull() & (begun | ended))
    return (
        known.groupBy("queue", "group", "delivery_id")
        .agg(
            F.first("message_id", ignorenulls=True).alias("message_id"),
            _first("worker", begun).alias("worker"),
            F.max("attempt").alias("attempt"),
            F.first("type", ignorenulls=True).alias("type"),
            _first("at", begun).alias("delivered_at"),
            _first("at", ended).alias("ended_at"),
            _first("event", ended).alias("outcome"),
            _first("wait_ms", begun).alias("wait_ms"),
            _first("run_ms", ended).alias("run_ms"),
            _first("error_kind", ended).alias("error_kind"),
            _first("error_fingerprint", ended).alias("error_fingerprint"),
        )
        .where(F.col("delivered_at").isNotNull())
    )


def _first(column: str, condition: Column) -> Column:
    return F.min_by(F.when(condition, F.col(column)), F.when(condition, F.col("seq")))
