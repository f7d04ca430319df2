"""Findings about open copies: lost, vanished with their journal, unrecorded, stuck, overtaken."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from godwit.core.journal.lifecycle import Phase
from godwit.pipeline.audit.copy_lifecycle import UNSURE
from godwit.pipeline.transforms.audit import COPY, with_unseen

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SAME: Final = [*COPY, "message_id"]


def lost_copies(open_copies: DataFrame, listing: DataFrame, listed: DataFrame) -> DataFrame:
    """Return the copies that the broker no longer has although they never ended.

    `listing` holds the broker's copies (`COPY`, message_id) when its journal had come to the seq in `listed`
    (shard, epoch, seq). The audit may have gone further: copies that arrived later are not missing. A copy with the
    number of another message is another copy. Where rows are missing, it is not known whether a copy ended: `unknown`.
    """
    there = open_copies.join(F.broadcast(listed.withColumnRenamed("seq", "listed_seq")), ["shard", "epoch"])
    gone = there.where(F.col("born") <= F.col("listed_seq")).join(_copies(listing), _SAME, "left_anti")
    unsure = F.col("state") == UNSURE
    what = F.when(unsure, "open before rows that are missing, and not in the broker").otherwise(
        F.concat(F.lit("open and "), F.col("state"), F.lit(", but not in the broker"))
    )
    return _finding(gone, F.when(unsure, "unknown").otherwise("lost"), what)


def vanished_copies(open_copies: DataFrame, listing: DataFrame, listed: DataFrame) -> DataFrame:
    """Return the copies of journals that the broker no longer has: they ended later, or are lost.

    Those that it lists in the same place of a newer journal are safe.
    """
    gone = open_copies.join(F.broadcast(listed), ["shard", "epoch"], "left_anti")
    safe = listing.drop("epoch", "queue")
    what = F.concat(F.lit("open and "), F.col("state"), F.lit(" when the broker lost the journal"))
    return _finding(gone.join(safe, [name for name in _SAME if name != "epoch"], "left_anti"), F.lit("unknown"), what)


def unrecorded_copies(open_copies: DataFrame, listing: DataFrame, unseen: DataFrame | None = None) -> DataFrame:
    """Return the copies that the broker has although the journal ended them or never had them.

    Only for shards whose listing and audit are at the same seq. Copies that may have arrived in rows that are missing
    (`unseen`) are none of them.
    """
    extra = with_unseen(listing, unseen).where(~F.col("unseen")).join(_copies(open_copies), _SAME, "left_anti")
    filled = extra.withColumn("ready_at", F.lit(None).cast("timestamp"))
    return _finding(filled, F.lit("duplicated"), F.lit("in the broker, but not open in the journal"))


def stuck_copies(open_copies: DataFrame, now: datetime, grace: timedelta) -> DataFrame:
    """Return leases that ended, and schedules that others of their lane overtook, more than `grace` ago.

    A schedule that is due and waits its turn is not stuck, however long.
    """
    limit = F.lit(now - grace)
    lease = (F.col("state") == Phase.LEASED.value) & (F.col("lease_until") < limit)
    due = (F.col("state") == Phase.WAITING.value) & ~F.col("delivered") & (F.col("deliver_at") < limit)
    passed = F.col("overtaken_at") < limit
    return _finding(
        open_copies.where(lease | (due & passed)),
        F.lit("stuck"),
        F.when(lease, F.concat(F.lit("leased until "), F.col("lease_until").cast("string"))).otherwise(
            F.concat(F.lit("due since "), F.col("deliver_at").cast("string"), F.lit(" and overtaken in its lane"))
        ),
    )


def overtaken_copies(open_copies: DataFrame, now: datetime, lease: timedelta) -> DataFrame:
    """Return copies that wait although later ones of their lane went ahead more than a lease ago."""
    overtaken = open_copies.where((F.col("state") == "waiting") & (F.col("overtaken_at") < F.lit(now - lease)))
    what = F.concat(F.lit("overtaken in its lane at "), F.col("overtaken_at").cast("string"))
    return _finding(overtaken, F.lit("suspect"), what)


def _copies(table: DataFrame) -> DataFrame:
    return table.select(*_SAME)


def _finding(copies: DataFrame, kind: Column, what: Column) -> DataFrame:
    return copies.select(
        kind.alias("kind"),
        "shard",
        "epoch",
        "queue",
        "group",
        "publish_seq",
        "message_id",
        F.col("ready_at").alias("at"),
        what.alias("what"),
    )
