"""Whether the journal's story is a possible one: copies that are lost, doubled, stuck or out of order.

An audit goes on from the copies that were open when the last one ended, so it costs what happened since, however long
the history. A row of `open` is a copy that has not come to its end:

    shard, queue, group, publish_seq, message_id, state (waiting | leased | dead), born (the seq it arrived with), seq
    (the last one that told of it), ready_at, deliver_at,
    lease_until, lane, ordering_key, delivered (once at least), overtaken_by (the highest publish_seq of its key that
    was delivered before it), overtaken_at (when a copy of its lane that was ready later was delivered first)

A finding is `kind, shard, queue, group, publish_seq, message_id, at, what`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from godwit.core.journal import Event
from godwit.pipeline.audit.copy_lifecycle import AFTER, MAY, STEPS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

COPY: Final = ("shard", "group", "publish_seq")
OPEN: Final = (
    "shard string, queue string, group string, publish_seq long, message_id string, state string, born long, seq long, "
    "ready_at timestamp, deliver_at timestamp, lease_until timestamp, lane int, ordering_key string, "
    "delivered boolean, overtaken_by long, overtaken_at timestamp"
)
FINDING: Final = ("kind", "shard", "queue", "group", "publish_seq", "message_id", "at", "what")


class AuditTables(NamedTuple):
    """What a stretch of the journal says: the copies open at its end, and what cannot have happened.

    Both come from `steps`, which is kept in Spark's cache until the caller lets go of it (`steps.unpersist()`).
    """

    open: DataFrame
    findings: DataFrame
    steps: DataFrame


def follow_copies(rows: DataFrame, before: DataFrame | None, ordered: DataFrame, *, removals: bool) -> AuditTables:
    """Go through `rows` from the copies open `before`; `ordered` names the groups (shard, group) that keep order.

    `removals` says whether the rows hold purges or removals of groups; without any, a costly step is left out.
    """
    told = _told(rows, before)
    if removals:
        told = _with_removals(told, rows)
    keeping = F.broadcast(ordered.withColumn("in_order", F.lit(True)))  # noqa: FBT003
    steps = _in_turn(told.join(keeping, ["shard", "group"], "left"), removals=removals).persist()
    return AuditTables(open=_open(steps), findings=_turns(steps).unionByName(_order(steps)), steps=steps)


def _in_turn(told: DataFrame, *, removals: bool) -> DataFrame:
    """Return the steps of each copy in order, with the state it `was` in and whether it is the `first` delivery."""
    one = Window.partitionBy(*COPY).orderBy("seq", "step")
    whole = one.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    was = F.coalesce(F.lag("state").over(one), F.lit("unborn"))
    steps = told.withColumn("lease_until", F.last("lease_until", ignorenulls=True).over(whole))
    steps = steps.where(F.col("step") != "renew").withColumn("was", was)
    if removals:
        reached = (F.col("step") != "purge") | (F.col("was") == "waiting")
        steps = steps.where(reached & ~((F.col("step") == "remove") & F.col("was").isin("ended", "unborn")))
        steps = steps.withColumn("was", was)
    before = F.coalesce(F.max(_delivered()).over(_earlier(one)), F.lit(False))  # noqa: FBT003
    return steps.withColumn("first", (F.col("step") == "deliver") & ~before)


def _told(rows: DataFrame, before: DataFrame | None) -> DataFrame:
    """Return what happened to copies, each row with its step and the state after it."""
    step = F.lit(None)
    for name, events in STEPS.items():
        step = F.when(F.col("event").isin(*(event.value for event in events)), name).otherwise(step)
    after = F.create_map(*(F.lit(text) for pair in AFTER.items() for text in pair))
    told = (
        rows.withColumn("step", step)
        .where(F.col("step").isNotNull() & F.col("publish_seq").isNotNull())
        .withColumn("born", F.col("seq"))
        .withColumn("carried_by", F.lit(None).cast("long"))
        .withColumn("carried_at", F.lit(None).cast("timestamp"))
        .withColumn("carried", F.lit(False))  # noqa: FBT003
    )
    replays = (
        told.where(F.col("former_seq").isNotNull())
        .withColumn("publish_seq", F.col("former_seq"))
        .withColumn("step", F.lit("replay"))
    )
    told = told.unionByName(replays).drop("event", "former_seq").withColumn("state", after[F.col("step")])
    return told if before is None else told.unionByName(_carried(before))


def _carried(before: DataFrame) -> DataFrame:
    """Return open copies as rows that come before all others."""
    return before.select(
        "shard",
        "seq",
        F.lit(None).cast("timestamp").alias("at"),
        "queue",
        "group",
        "publish_seq",
        "message_id",
        "ready_at",
        "deliver_at",
        "lease_until",
        F.lit(None).cast("long").alias("wait_ms"),
        "lane",
        "ordering_key",
        F.lit("arrive").alias("step"),
        "born",
        F.col("overtaken_by").alias("carried_by"),
        F.col("overtaken_at").alias("carried_at"),
        F.col("delivered").alias("carried"),
        "state",
    )


def _with_removals(told: DataFrame, rows: DataFrame) -> DataFrame:
    """Add to every copy the purges and removals of its group that came after it."""
    removing = [event.value for name in ("purge", "remove") for event in STEPS[name]]
    found = rows.where(F.col("event").isin(*removing)).select(
        "shard",
        F.col("group").alias("of_group"),
        F.col("seq").alias("removed_seq"),
        F.col("at").alias("removed_at"),
        F.when(F.col("event") == Event.PURGED.value, "purge").otherwise("remove").alias("removal"),
    )
    copies = told.where(F.col("step") == "arrive")
    taken = copies.join(F.broadcast(found), "shard").where(
        (F.col("of_group").isNull() | (F.col("of_group") == F.col("group"))) & (F.col("removed_seq") > F.col("seq"))
    )
    ended = taken.withColumns(
        {
            "seq": F.col("removed_seq"),
            "at": F.col("removed_at"),
            "step": F.col("removal"),
            "state": F.lit("ended"),
            "carried": F.lit(False),  # noqa: FBT003
        }
    )
    return told.unionByName(ended.drop("of_group", "removed_seq", "removed_at", "removal"))


def _earlier(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, -1)


def _delivered() -> Column:
    return (F.col("step") == "deliver") | F.col("carried")


def _passed() -> Column:
    """Return the publish_seq that a row shows to have been delivered in its key."""
    return F.greatest(F.when(F.col("first"), F.col("publish_seq")), F.col("carried_by"))


def _turns(steps: DataFrame) -> DataFrame:
    """Return the steps that were taken from a state in which they cannot be."""
    wrong = F.lit(False)  # noqa: FBT003
    for step, states in MAY.items():
        wrong = wrong | ((F.col("step") == step) & ~F.col("was").isin(*states))
    fresh = F.col("at").isNotNull()  # a carried copy is no step
    what = F.concat(F.col("step"), F.lit(" of a copy that was "), F.col("was"))
    return steps.where(wrong & fresh).select(F.lit("duplicated").alias("kind"), *FINDING[1:-1], what.alias("what"))


def _order(steps: DataFrame) -> DataFrame:
    """Return first deliveries that came after a later message of their key."""
    key = Window.partitionBy("shard", "group", "ordering_key").orderBy("seq", "step")
    told = steps.where(F.col("in_order") & F.col("ordering_key").isNotNull() & _passed().isNotNull())
    behind = told.withColumn("high", F.max(_passed()).over(_earlier(key))).where(
        F.col("first") & (F.col("high") > F.col("publish_seq"))
    )
    what = F.concat(F.lit("delivered after publish_seq "), F.col("high").cast("string"), F.lit(" of its key"))
    return behind.select(F.lit("out_of_order").alias("kind"), *FINDING[1:-1], what.alias("what"))


def _open(steps: DataFrame) -> DataFrame:
    """Return the copies that have not come to their end."""
    copies = steps.groupBy(*COPY).agg(
        F.first("queue").alias("queue"),
        F.max("message_id").alias("message_id"),
        F.max_by("state", F.struct("seq", "step")).alias("state"),
        F.min("born").alias("born"),
        F.max("seq").alias("seq"),
        F.max_by("ready_at", F.when(F.col("ready_at").isNotNull(), F.col("seq"))).alias("ready_at"),
        F.max("deliver_at").alias("deliver_at"),
        F.first("lease_until").alias("lease_until"),
        F.max("lane").alias("lane"),
        F.max("ordering_key").alias("ordering_key"),
        F.max(_delivered()).alias("delivered"),
        F.max("carried_by").alias("carried_by"),
        F.max("carried_at").alias("carried_at"),
        F.first("in_order").alias("in_order"),
    )
    alive = copies.where(F.col("state") != "ended")
    key, lane = ["shard", "group", "ordering_key"], ["shard", "group", "lane"]
    passed = steps.where(F.col("in_order")).groupBy(*key).agg(F.max(_passed()).alias("passed"))
    waiting = (F.col("state") == "waiting") & ~F.col("delivered")
    overtaken = waiting & F.col("in_order").isNull() & (F.col("newest_ready") > F.unix_millis("ready_at"))
    marks = {
        "lease_until": F.when(F.col("state") == "leased", F.col("lease_until")),
        "overtaken_by": F.when(~F.col("delivered"), F.greatest("carried_by", "passed")),
        "overtaken_at": F.when(waiting, F.least("carried_at", F.when(overtaken, F.col("newest_at")))),
    }
    marked = alive.join(passed, key, "left").join(F.broadcast(_newest(steps)), lane, "left").withColumns(marks)
    return marked.select(*(field.split()[0] for field in OPEN.split(", ")))


def _newest(steps: DataFrame) -> DataFrame:
    """Return, for every lane, the copy that was ready last of those delivered; of several the one delivered last."""
    ready = (F.unix_millis("at") - F.col("wait_ms")).alias("was_ready")
    return (
        steps.where(F.col("first") & F.col("in_order").isNull())
        .select("shard", "group", "lane", "at", ready)
        .groupBy("shard", "group", "lane")
        .agg(F.max("was_ready").alias("newest_ready"), F.max_by("at", F.struct("was_ready", "at")).alias("newest_at"))
    )


def lost_copies(open_copies: DataFrame, listing: DataFrame, listed: DataFrame) -> DataFrame:
    """Return the copies that the broker no longer has although they never ended.

    `listing` holds what the broker had (shard, group, publish_seq) when its journal had come to the seq that `listed`
    (shard, seq) names. The audit may have gone further: what arrived later is not missing.
    """
    there = open_copies.join(F.broadcast(listed.withColumnRenamed("seq", "listed_seq")), "shard")
    missing = there.where(F.col("born") <= F.col("listed_seq")).join(listing.select(*COPY), list(COPY), "left_anti")
    return _finding(missing, "lost", F.concat(F.lit("open and "), F.col("state"), F.lit(", but not in the broker")))


def unrecorded_copies(open_copies: DataFrame, listing: DataFrame) -> DataFrame:
    """Return the copies that the broker has although the journal ended them or never had them.

    Only for shards that the listing and the audit have followed up to the same seq.
    """
    extra = listing.join(open_copies.select(*COPY), list(COPY), "left_anti")
    filled = extra.withColumn("ready_at", F.lit(None).cast("timestamp"))
    return _finding(filled, "duplicated", F.lit("in the broker, but not open in the journal"))


def stuck_copies(open_copies: DataFrame, now: datetime, grace: timedelta) -> DataFrame:
    """Return leases and schedules whose time passed more than `grace` ago."""
    limit = F.lit(now - grace)
    lease = (F.col("state") == "leased") & (F.col("lease_until") < limit)
    due = (F.col("state") == "waiting") & ~F.col("delivered") & (F.col("deliver_at") < limit)
    return _finding(
        open_copies.where(lease | due),
        "stuck",
        F.when(
            F.col("state") == "leased", F.concat(F.lit("leased until "), F.col("lease_until").cast("string"))
        ).otherwise(F.concat(F.lit("due since "), F.col("deliver_at").cast("string"))),
    )


def overtaken_copies(open_copies: DataFrame, now: datetime, lease: timedelta) -> DataFrame:
    """Return copies that wait although later ones of their lane went ahead more than a lease ago."""
    overtaken = open_copies.where((F.col("state") == "waiting") & (F.col("overtaken_at") < F.lit(now - lease)))
    what = F.concat(F.lit("overtaken in its lane at "), F.col("overtaken_at").cast("string"))
    return _finding(overtaken, "suspect", what)


def _finding(copies: DataFrame, kind: str, what: Column) -> DataFrame:
    return copies.select(
        F.lit(kind).alias("kind"),
        "shard",
        "queue",
        "group",
        "publish_seq",
        "message_id",
        F.col("ready_at").alias("at"),
        what.alias("what"),
    )
