"""Follows copies through the journal: finds copies that are lost, doubled, stuck or out of order.

An audit continues from the copies that were open when the last one ended, so its cost is that of the new rows, however
long the history. A row of `open` is a copy that has not ended:

    shard, queue, group, publish_seq, message_id, state (waiting | leased | dead), born (the seq it arrived with), seq
    (of its last step), ready_at, deliver_at,
    lease_until, lane, ordering_key, delivered (once at least), overtaken_by (the highest publish_seq of its key that
    was delivered before it), overtaken_at (when a copy of its lane that was ready later was delivered first)

A finding is `kind, shard, queue, group, publish_seq, message_id, at, what`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from godwit.core.journal.lifecycle import REMOVALS
from godwit.core.journal.vocabulary import Event
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
    """The result of following rows: the copies open at their end, and what cannot have happened.

    Both derive from `steps`, which stays in Spark's cache until the caller releases it (`steps.unpersist()`).
    """

    open: DataFrame
    findings: DataFrame
    steps: DataFrame


def follow_copies(rows: DataFrame, before: DataFrame | None, ordered: DataFrame, *, removals: bool) -> AuditTables:
    """Follow `rows` from the copies open `before`; `ordered` names the groups (shard, group) that keep order.

    `removals` says whether the rows hold purges or removals of groups; without any, a costly step is left out.
    """
    events = _copy_events(rows, before)
    if removals:
        events = _with_removals(events, rows)
    keeping = F.broadcast(ordered.withColumn("in_order", F.lit(True)))  # noqa: FBT003
    steps = _ordered_steps(events.join(keeping, ["shard", "group"], "left"), removals=removals).persist()
    return AuditTables(open=_open(steps), findings=_wrong_steps(steps).unionByName(_out_of_order(steps)), steps=steps)


def _ordered_steps(events: DataFrame, *, removals: bool) -> DataFrame:
    """Return the steps of each copy in order, with the state it `was` in and whether it is the `first` delivery."""
    by_copy = Window.partitionBy(*COPY).orderBy("seq", "step")
    whole = by_copy.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    was = F.coalesce(F.lag("state").over(by_copy), F.lit("unborn"))
    steps = events.withColumn("lease_until", F.last("lease_until", ignorenulls=True).over(whole))
    steps = steps.where(F.col("step") != "renew").withColumn("was", was)
    if removals:
        reached = (F.col("step") != "purge") | (F.col("was") == "waiting")
        steps = steps.where(reached & ~((F.col("step") == "remove") & F.col("was").isin("ended", "unborn")))
        steps = steps.withColumn("was", was)
    before = F.coalesce(F.max(_delivered()).over(_earlier(by_copy)), F.lit(False))  # noqa: FBT003
    return steps.withColumn("first", (F.col("step") == "deliver") & ~before)


def _copy_events(rows: DataFrame, before: DataFrame | None) -> DataFrame:
    """Return the events of copies, each row with its step and the state after it."""
    step = F.lit(None)
    for name, events in STEPS.items():
        step = F.when(F.col("event").isin(*(event.value for event in events)), name.value).otherwise(step)
    after = F.create_map(*(F.lit(word.value) for pair in AFTER.items() for word in pair))
    copies = (
        rows.withColumn("step", step)
        .where(F.col("step").isNotNull() & F.col("publish_seq").isNotNull())
        .withColumn("born", F.col("seq"))
        .withColumn("carried_by", F.lit(None).cast("long"))
        .withColumn("carried_at", F.lit(None).cast("timestamp"))
        .withColumn("carried", F.lit(False))  # noqa: FBT003
    )
    replays = (
        copies.where(F.col("former_seq").isNotNull())
        .withColumn("publish_seq", F.col("former_seq"))
        .withColumn("step", F.lit("replay"))
    )
    copies = copies.unionByName(replays).drop("event", "former_seq").withColumn("state", after[F.col("step")])
    return copies if before is None else copies.unionByName(_open_copies_as_rows(before))


def _open_copies_as_rows(before: DataFrame) -> DataFrame:
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


def _with_removals(events: DataFrame, rows: DataFrame) -> DataFrame:
    """Add to every copy the purges and removals of its group that came after it."""
    removals = rows.where(F.col("event").isin(*(event.value for event in REMOVALS))).select(
        "shard",
        F.col("group").alias("of_group"),
        F.col("seq").alias("removed_seq"),
        F.col("at").alias("removed_at"),
        F.when(F.col("event") == Event.PURGED.value, "purge").otherwise("remove").alias("removal"),
    )
    copies = events.where(F.col("step") == "arrive")
    taken = copies.join(F.broadcast(removals), "shard").where(
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
    return events.unionByName(ended.drop("of_group", "removed_seq", "removed_at", "removal"))


def _earlier(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, -1)


def _delivered() -> Column:
    return (F.col("step") == "deliver") | F.col("carried")


def _delivered_seq() -> Column:
    """Return the publish_seq that a row proves to have been delivered in its key."""
    return F.greatest(F.when(F.col("first"), F.col("publish_seq")), F.col("carried_by"))


def _wrong_steps(steps: DataFrame) -> DataFrame:
    """Return the steps taken from a state that does not allow them."""
    wrong = F.lit(False)  # noqa: FBT003
    for step, phases in MAY.items():
        wrong = wrong | ((F.col("step") == step.value) & ~F.col("was").isin(*(phase.value for phase in phases)))
    fresh = F.col("at").isNotNull()  # the row of a carried copy is no step
    what = F.concat(F.col("step"), F.lit(" of a copy that was "), F.col("was"))
    return steps.where(wrong & fresh).select(F.lit("duplicated").alias("kind"), *FINDING[1:-1], what.alias("what"))


def _out_of_order(steps: DataFrame) -> DataFrame:
    """Return first deliveries that came after a later message of their key."""
    key = Window.partitionBy("shard", "group", "ordering_key").orderBy("seq", "step")
    keyed = steps.where(F.col("in_order") & F.col("ordering_key").isNotNull() & _delivered_seq().isNotNull())
    behind = keyed.withColumn("high", F.max(_delivered_seq()).over(_earlier(key))).where(
        F.col("first") & (F.col("high") > F.col("publish_seq"))
    )
    what = F.concat(F.lit("delivered after publish_seq "), F.col("high").cast("string"), F.lit(" of its key"))
    return behind.select(F.lit("out_of_order").alias("kind"), *FINDING[1:-1], what.alias("what"))


def _open(steps: DataFrame) -> DataFrame:
    """Return the copies that have not ended."""
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
    passed = steps.where(F.col("in_order")).groupBy(*key).agg(F.max(_delivered_seq()).alias("passed"))
    waiting = (F.col("state") == "waiting") & ~F.col("delivered")
    overtaken = waiting & F.col("in_order").isNull() & (F.col("newest_ready") > F.unix_millis("ready_at"))
    marks = {
        "lease_until": F.when(F.col("state") == "leased", F.col("lease_until")),
        "overtaken_by": F.when(~F.col("delivered"), F.greatest("carried_by", "passed")),
        "overtaken_at": F.when(waiting, F.least("carried_at", F.when(overtaken, F.col("newest_at")))),
    }
    marked = alive.join(passed, key, "left").join(F.broadcast(_newest_ready(steps)), lane, "left").withColumns(marks)
    return marked.select(*(field.split()[0] for field in OPEN.split(", ")))


def _newest_ready(steps: DataFrame) -> DataFrame:
    """Return, for every lane, the delivered copy that was ready last; of several the one delivered last."""
    ready = (F.unix_millis("at") - F.col("wait_ms")).alias("was_ready")
    return (
        steps.where(F.col("first") & F.col("in_order").isNull())
        .select("shard", "group", "lane", "at", ready)
        .groupBy("shard", "group", "lane")
        .agg(F.max("was_ready").alias("newest_ready"), F.max_by("at", F.struct("was_ready", "at")).alias("newest_at"))
    )


def lost_copies(open_copies: DataFrame, listing: DataFrame, listed: DataFrame) -> DataFrame:
    """Return the copies that the broker no longer has although they never ended.

    `listing` holds the broker's copies (shard, group, publish_seq) when its journal had come to the seq in `listed`
    (shard, seq). The audit may have gone further: copies that arrived later are not missing.
    """
    there = open_copies.join(F.broadcast(listed.withColumnRenamed("seq", "listed_seq")), "shard")
    missing = there.where(F.col("born") <= F.col("listed_seq")).join(listing.select(*COPY), list(COPY), "left_anti")
    return _finding(missing, "lost", F.concat(F.lit("open and "), F.col("state"), F.lit(", but not in the broker")))


def unrecorded_copies(open_copies: DataFrame, listing: DataFrame) -> DataFrame:
    """Return the copies that the broker has although the journal ended them or never had them.

    Only for shards whose listing and audit are at the same seq.
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
