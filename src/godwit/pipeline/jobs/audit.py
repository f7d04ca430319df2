"""The audit job: follow the journal, compare the open copies with the broker's, and return a verdict.

The broker's listing is taken first, together with its seq; the journal is then followed at least as far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING, Final

import msgspec

from godwit.brokers.contract import Broker, Snapshot
from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms
from godwit.core.journal.shards import shard_parts
from godwit.pipeline.audit.part import AuditState, audit_key
from godwit.pipeline.batch.publisher import BatchOutcome
from godwit.pipeline.jobs.run import RunSettings, check_settings, follow
from godwit.pipeline.lake.files import Lake
from godwit.pipeline.spark.connections import Connections
from godwit.pipeline.spark.session import spark_session
from godwit.pipeline.transforms import audit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SHOWN: Final = 100
"""How many findings a result lists; all are counted."""
JOURNAL_PROMISE: Final = "11"
LISTING: Final = "shard string, queue string, group string, publish_seq long, message_id string"


class AuditVerdict(StrEnum):
    """The verdict of an audit."""

    CLEAN = "clean"
    WRONG = "wrong"
    UNKNOWN = "unknown"


class AuditSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an audit: how the journal is followed, and what counts as too long."""

    run: RunSettings
    live: bool = True
    grace: timedelta = timedelta(minutes=5)
    lease: timedelta = timedelta(minutes=1)


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that cannot have happened, or should not continue."""

    kind: str
    shard: str
    queue: str
    group: str | None
    publish_seq: int | None
    message_id: str | None
    what: str


class AuditResult(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, the findings, and the reasons why a part cannot be known."""

    verdict: AuditVerdict
    rows: int
    open: int
    live: bool
    counts: Mapping[str, int]
    findings: tuple[AuditFinding, ...]
    unknown: tuple[str, ...]


KINDS: Final = ("lost", "duplicated", "out_of_order", "stuck", "suspect")
WRONG: Final = frozenset({"lost", "duplicated", "out_of_order", "stuck"})


def run_audit(
    settings: AuditSettings,
    *,
    report: Callable[[BatchOutcome], None] = lambda _outcome: None,
    clock: Clock = SYSTEM_CLOCK,
) -> AuditResult:
    """Follow the journal to its present end in a session of its own, and evaluate the open copies."""
    check_settings(settings.run)
    with (
        Connections(settings.run.broker_url, settings.run.store_url) as connections,
        spark_session(f"godwit audit {settings.run.name}", master=settings.run.master) as spark,
    ):
        return audit_in_session(spark, connections, settings, report=report, clock=clock)


def audit_in_session(
    spark: SparkSession,
    connections: Connections,
    settings: AuditSettings,
    *,
    report: Callable[[BatchOutcome], None] = lambda _outcome: None,
    clock: Clock = SYSTEM_CLOCK,
) -> AuditResult:
    """Audit in an open session."""
    rows = 0

    def note(outcome: BatchOutcome) -> None:
        nonlocal rows
        rows += outcome.rows
        report(outcome)

    listing = connections.broker(_snapshots) if settings.live else {}
    follow(spark, connections, settings.run, note)
    return evaluate(spark, connections, settings, listing, now=from_ms(clock.now_ms()), rows=rows)


async def _snapshots(broker: Broker) -> dict[str, Snapshot]:
    """Return the broker's copies of every queue, by shard."""
    queues = {stats.name for stats in await broker.stats()}
    shards = [(shard, shard_parts(shard)) for shard in await broker.journal.shards()]
    return {
        shard: await broker.journal.snapshot(shard if parts[1] else parts[0])
        for shard, parts in shards
        if parts is not None and parts[0] in queues
    }


def evaluate(
    spark: SparkSession,
    connections: Connections,
    settings: AuditSettings,
    listing: Mapping[str, Snapshot],
    *,
    now: datetime,
    rows: int,
) -> AuditResult:
    """Compare the audit's state with a listing and with the time."""
    lake = Lake(settings.run.lake, settings.run.name)
    state = AuditState(spark, connections, lake)
    live = state.open.cache()
    try:
        findings = [state.findings.select(*audit.FINDING), audit.stuck_copies(live, now, settings.grace)]
        if settings.live:
            reached = connections.pipelines(lambda state: state.positions(audit_key(lake)))
            level = {
                shard for shard, snapshot in listing.items() if shard in reached and reached[shard] == snapshot.position
            }
            findings += _compare(spark, live, listing, level)
        else:
            findings.append(audit.overtaken_copies(live, now, settings.lease))
        table = reduce(lambda union, finding: union.unionByName(finding), findings).cache()
        counts = Counter({row["kind"]: row["count"] for row in table.groupBy("kind").count().collect()})
        shown = [_finding(row) for row in table.orderBy("kind", "shard", "group", "publish_seq").limit(SHOWN).collect()]
        total = live.count()
    finally:
        live.unpersist()
    unknown = _unknown(state, connections)
    return AuditResult(
        verdict=_verdict(counts, unknown),
        rows=rows,
        open=total,
        live=settings.live,
        counts={kind: counts[kind] for kind in KINDS},
        findings=tuple(shown),
        unknown=unknown,
    )


def _compare(spark: SparkSession, live: DataFrame, listing: Mapping[str, Snapshot], level: set[str]) -> list[DataFrame]:
    """Compare open copies with the broker's."""
    copies = [
        (shard, copy.queue, copy.group, copy.publish_seq, copy.message_id)
        for shard, snapshot in listing.items()
        for copy in snapshot.copies
    ]
    table = spark.createDataFrame(copies, LISTING)
    listed = spark.createDataFrame(
        [(shard, snapshot.position.seq) for shard, snapshot in listing.items()], "shard string, seq long"
    )
    even = table.where(table["shard"].isin(*level)) if level else table.limit(0)
    return [audit.lost_copies(live, table, listed), audit.unrecorded_copies(live, even)]


def _finding(row: Row) -> AuditFinding:
    return msgspec.convert({name: row[name] for name in AuditFinding.__struct_fields__}, AuditFinding)


def _unknown(state: AuditState, connections: Connections) -> tuple[str, ...]:
    """Return the reasons why something cannot be known from these journals."""
    reasons = [
        f"The journal of {start.shard} is audited from row {start.first_seq:,} on: what came before is gone."
        for start in state.beginnings()
        if start.first_seq > 1
    ]

    async def best_effort(broker: Broker) -> bool:
        return JOURNAL_PROMISE in broker.partial_promises

    if connections.broker(best_effort):
        reasons.append("This broker's journal is written after the fact: what it lacks may not have been lost.")
    return tuple(reasons)


def _verdict(counts: Mapping[str, int], unknown: Sequence[str]) -> AuditVerdict:
    if any(counts.get(kind) for kind in WRONG):
        return AuditVerdict.WRONG
    return AuditVerdict.UNKNOWN if unknown else AuditVerdict.CLEAN
