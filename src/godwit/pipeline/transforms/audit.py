"""Follows copies through the journal: finds copies that are lost, doubled, stuck or out of order.

An audit continues from the copies that were open when the last one ended, so its cost is that of the new rows, however
long the history. A row of `open` is a copy that has not ended:

    shard, epoch, queue, group, publish_seq, message_id, state (waiting | leased | dead | unsure), born (the seq it
    arrived with), seq (of its last step), ready_at, deliver_at,
    lease_until, lane, ordering_key, delivered (once at least), overtaken_by (the highest publish_seq of its key that
    was delivered before it), overtaken_at (when a copy of its lane that was ready later was delivered first)

A copy is `unsure` when rows of its journal are missing after its last step, or where it may have arrived: any step but
an arrival may come next, and only the broker's listing can tell whether it is still there.

A finding is `kind, shard, epoch, queue, group, publish_seq, message_id, at, what`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from godwit.core.journal.lifecycle import CopyStep, Phase
from godwit.pipeline.audit.copy_lifecycle import AFTER, MAY, STEPS, UNSURE
from godwit.pipeline.audit.interruptions import Interruptions, with_interruptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

PLACE: Final = ("shard", "epoch", "group")
COPY: Final = (*PLACE, "publish_seq")
OPEN: Final = (
    "shard string, epoch string, queue string, group string, publish_seq long, message_id string, state string, "
    "born long, seq long, ready_at timestamp, deliver_at timestamp, lease_until timestamp, lane int, "
    "ordering_key string, delivered boolean, overtaken_by long, overtaken_at timestamp"
)
FINDING: Final = ("kind", "shard", "epoch", "queue", "group", "publish_seq", "message_id", "at", "what")


class AuditTables(NamedTuple):
    """The result of following rows: the copies open at their end, and what cannot have happened.

    Both derive from `steps`, which stays in Spark's cache until the caller releases it (`steps.unpersist()`).
    """

    open: DataFrame
    findings: DataFrame
    steps: DataFrame


def follow_copies(
    rows: DataFrame,
    before: DataFrame | None,
    ordered: DataFrame,
    *,
    interruptions: Interruptions | None = None,
    unseen: DataFrame | None = None,
) -> AuditTables:
    """Follow `rows` from the copies open `before`; `ordered` says which groups (`PLACE`) are `in_order`.

    Of groups that are not named, or may keep order (False), nothing is held against their keys; lanes are compared only
    in groups that are not named.

    `interruptions` holds the purges and removals among the rows and the gaps between them; `unseen` names the numbers
    of copies that may have arrived in rows that are missing (`PLACE`, `spans`; of all groups of a shard where `group`
    is null). Without any of them, costly steps are left out.
    """
    events = _copy_events(rows, before)
    if interruptions:
        events = with_interruptions(events, interruptions)
    events = with_unseen(events.join(F.broadcast(ordered), list(PLACE), "left"), unseen)
    steps = _ordered_steps(events, interrupted=bool(interruptions)).persist()
    return AuditTables(open=_open(steps), findings=_wrong_steps(steps).unionByName(_out_of_order(steps)), steps=steps)


def _ordered_steps(events: DataFrame, *, interrupted: bool) -> DataFrame:
    """Return the steps of each copy in order, with the state it `was` in and whether it is the `first` delivery.

    `state` becomes the state right before the next step: a purge, a removal or a gap may lie between.
    """
    by_copy = Window.partitionBy(*COPY).orderBy("seq", "step")
    whole = by_copy.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    steps = events.withColumn("lease_until", F.last("lease_until", ignorenulls=True).over(whole))
    steps = steps.where(F.col("step") != CopyStep.RENEW.value)
    if interrupted:
        steps = steps.withColumn("state", _state_before(F.lead("seq").over(by_copy)))
    older = F.col("unseen") & (F.col("step") != CopyStep.ARRIVE.value)
    start = F.when(older, F.lit(UNSURE)).otherwise(F.lit(Phase.UNBORN.value))
    steps = steps.withColumn("was", F.coalesce(F.lag("state").over(by_copy), start))
    before = F.coalesce(F.max(_delivered()).over(_earlier(by_copy)), F.lit(False))  # noqa: FBT003
    return steps.withColumn("first", (F.col("step") == "deliver") & ~before & (F.col("was") != UNSURE))


def _state_before(following: Column) -> Column:
    """Return the state of a copy right before its step at seq `following`, or at the end of the rows."""

    def comes(name: str) -> Column:
        return F.col(name).isNotNull() & (following.isNull() | (F.col(name) < following))

    waits, gap = F.col("state") == Phase.WAITING.value, comes("gap_seq")
    purged = waits & comes("purge_seq") & (~gap | (F.col("purge_seq") < F.col("gap_seq")))
    return (
        F.when((F.col("state") == Phase.ENDED.value) | comes("remove_seq") | purged, Phase.ENDED.value)
        .when(gap, UNSURE)
        .otherwise(F.col("state"))
    )


def with_unseen(events: DataFrame, unseen: DataFrame | None) -> DataFrame:
    """Say of each event whether its copy may have arrived in rows that are missing."""
    if unseen is None:
        return events.withColumn("unseen", F.lit(False))  # noqa: FBT003
    places = F.broadcast(unseen.where(F.col("group").isNotNull()))
    shards = F.broadcast(unseen.where(F.col("group").isNull()).select("shard", "epoch", F.lit(True).alias("all")))  # noqa: FBT003
    inside = F.exists(
        "spans",
        lambda span: (
            (F.col("publish_seq") > span["after"]) & (span["before"].isNull() | (F.col("publish_seq") < span["before"]))
        ),
    )
    known = events.join(places, list(PLACE), "left").join(shards, ["shard", "epoch"], "left")
    return known.withColumn("unseen", F.coalesce(inside, "all", F.lit(False))).drop("spans", "all")  # noqa: FBT003


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
        "epoch",
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
        allowed = [phase.value for phase in phases] + [UNSURE] * (step is not CopyStep.ARRIVE)
        wrong = wrong | ((F.col("step") == step.value) & ~F.col("was").isin(*allowed))
    fresh = F.col("at").isNotNull()  # the row of a carried copy is no step
    what = F.concat(F.col("step"), F.lit(" of a copy that was "), F.col("was"))
    return steps.where(wrong & fresh).select(F.lit("duplicated").alias("kind"), *FINDING[1:-1], what.alias("what"))


def _out_of_order(steps: DataFrame) -> DataFrame:
    """Return first deliveries that came after a later message of their key."""
    key = Window.partitionBy(*PLACE, "ordering_key").orderBy("seq", "step")
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
        F.max(_delivered() | (F.col("state") == UNSURE)).alias("delivered"),
        F.max("carried_by").alias("carried_by"),
        F.max("carried_at").alias("carried_at"),
        F.first("in_order").alias("in_order"),
    )
    alive = copies.where(F.col("state") != "ended")
    key, lane = [*PLACE, "ordering_key"], [*PLACE, "lane"]
    passed = steps.where(F.col("in_order")).groupBy(*key).agg(F.max(_delivered_seq()).alias("passed"))
    waiting = (F.col("state") == "waiting") & ~F.col("delivered")
    # A schedule that is due enters its lane with the next pull, behind what was published in between.
    since = F.when(F.col("deliver_at").isNull(), F.col("newest_ready")).otherwise(F.col("turn_ms"))
    overtaken = waiting & F.col("in_order").isNull() & (since > F.unix_millis("ready_at"))
    marks = {
        "lease_until": F.when(F.col("state") == "leased", F.col("lease_until")),
        "overtaken_by": F.when(~F.col("delivered"), F.greatest("carried_by", "passed")),
        "overtaken_at": F.when(waiting, F.least("carried_at", F.when(overtaken, F.col("newest_at")))),
    }
    marked = alive.join(passed, key, "left").join(F.broadcast(_newest_ready(steps)), lane, "left").withColumns(marks)
    return marked.select(*(field.split()[0] for field in OPEN.split(", ")))


def _newest_ready(steps: DataFrame) -> DataFrame:
    """Return, for every lane, the delivered copy that was ready last (of several the one delivered last), and its turn.

    `turn_ms` is when the last delivery before that copy was ready took place: what was due by then stood in the lane
    before it.
    """
    delivered = steps.where(F.col("first") & F.col("in_order").isNull()).select(
        *PLACE, "lane", "at", (F.unix_millis("at") - F.col("wait_ms")).alias("was_ready")
    )
    lane = [*PLACE, "lane"]
    newest = delivered.groupBy(*lane).agg(
        F.max("was_ready").alias("newest_ready"), F.max_by("at", F.struct("was_ready", "at")).alias("newest_at")
    )
    before = delivered.join(F.broadcast(newest), lane).where(F.unix_millis("at") < F.col("newest_ready"))
    turns = before.groupBy(*lane).agg(F.max(F.unix_millis("at")).alias("turn_ms"))
    return newest.join(F.broadcast(turns), lane, "left")
