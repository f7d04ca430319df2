"""The audit job: follow the journal, compare the open copies with the broker's, store the verdict and return it.

The broker's listing is taken first, together with its seq; the journal is then followed at least as far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from godwit.brokers.contract import Broker, ShardEnds
from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms
from godwit.core.errors import StoreBusy
from godwit.core.journal.shards import Position
from godwit.pipeline.audit.broker_copies import LISTING, BrokerListing
from godwit.pipeline.audit.coverage import Coverage
from godwit.pipeline.audit.part import AuditState, audit_key, unseen_table
from godwit.pipeline.audit.verdict import (
    KINDS,
    UNKNOWN,
    AuditFinding,
    AuditResult,
    ChainCheck,
    chained,
    check_chain,
    coverage_between,
    unknown_spans,
    verdict_of,
)
from godwit.pipeline.batch.publisher import BatchOutcome
from godwit.pipeline.jobs.run import RunSettings, check_settings, follow, read_options_of
from godwit.pipeline.lake.files import Lake
from godwit.pipeline.source.offsets import chosen_shards
from godwit.pipeline.spark.connections import Connections
from godwit.pipeline.spark.session import run_folder_of, spark_session
from godwit.pipeline.transforms import audit, audit_findings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SHOWN: Final = 100
"""How many findings a result lists; all are counted."""
JOURNAL_PROMISE: Final = "11"
TRIES: Final = 10


class AuditSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an audit: how the journal is followed, and what counts as too long."""

    run: RunSettings
    live: bool = True
    grace: timedelta = timedelta(minutes=5)
    lease: timedelta = timedelta(minutes=1)


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

    options = read_options_of(settings.run)
    shards = connections.broker(lambda broker: chosen_shards(broker.journal, options))
    listing = BrokerListing(run_folder_of(spark))
    try:
        if settings.live:
            connections.broker(lambda broker: listing.take(broker, shards))
        follow(spark, connections, settings.run, note)
        now = from_ms(clock.now_ms())
        result = evaluate(spark, connections, settings, listing, shards, now=now, rows=rows)
    finally:
        listing.forget()
    return attest(connections, audit_key(Lake(settings.run.lake, settings.run.name)), result, at=now)


def evaluate(
    spark: SparkSession,
    connections: Connections,
    settings: AuditSettings,
    listing: BrokerListing,
    shards: Mapping[str, ShardEnds],
    *,
    now: datetime,
    rows: int,
) -> AuditResult:
    """Compare the audit's state with a listing and with the time; `shards` are the journals that the broker has."""
    lake = Lake(settings.run.lake, settings.run.name)
    state = AuditState(spark, connections, lake)
    coverage = _chosen(state.coverage(), settings.run)
    reached = connections.pipelines(lambda state: state.positions(audit_key(lake)))
    # Of a journal that was set back, the audit's position has another epoch until its rows are followed anew.
    held = {
        shard: listing.positions.get(shard, Position(ends.epoch, ends.last_seq))
        for shard, ends in shards.items()
        if shard in reached and reached[shard].epoch == ends.epoch
    }
    level = {shard for shard, position in held.items() if settings.live and reached[shard] == position}
    live = state.open.cache()
    try:
        findings = [state.findings.select(*audit.FINDING), audit_findings.stuck_copies(live, now, settings.grace)]
        findings += _compare(spark, live, listing, held, level, coverage, live_listing=settings.live)
        if not settings.live:
            findings.append(audit_findings.overtaken_copies(live, now, settings.lease))
        table = reduce(lambda union, finding: union.unionByName(finding), findings).cache()
        groups = table.groupBy("kind", "shard", "epoch").count().collect()
        shown = [_finding(row) for row in table.orderBy("kind", "shard", "group", "publish_seq").limit(SHOWN).collect()]
        total = live.count()
        table.unpersist()
    finally:
        live.unpersist()
    counts: Counter[str] = Counter()
    for row in groups:
        counts[row["kind"]] += row["count"]
    unseen = {(row["shard"], row["epoch"]): row["count"] for row in groups if row["kind"] == UNKNOWN}
    unknown = unknown_spans(coverage, ((shard, position.epoch) for shard, position in held.items()), unseen)
    remarks = _remarks(connections)
    return AuditResult(
        verdict=verdict_of(counts, [*unknown, *remarks]),
        rows=rows,
        open=total,
        live=settings.live,
        counts={kind: counts[kind] for kind in KINDS},
        findings=tuple(shown),
        unknown=unknown,
        remarks=remarks,
        coverage=coverage_between(coverage, compared=len(held) if settings.live else 0, level=len(level)),
    )


def attest(connections: Connections, key: str, result: AuditResult, *, at: datetime) -> AuditResult:
    """Store a verdict behind the last one of its audit; return it with its number and hash."""
    for _ in range(TRIES):
        last = connections.pipelines(lambda state: state.last_verdict(key))
        verdict = chained(result, last, at=at)
        if connections.pipelines(lambda state, verdict=verdict: state.attest(key, verdict)):  # type: ignore[misc]
            return msgspec.structs.replace(result, number=verdict.number, hash=verdict.hash)
    raise StoreBusy("storing a verdict", "other audits of this name store theirs")


def verify_chain(connections: Connections, name: str) -> ChainCheck:
    """Check the chain of the verdicts of an audit."""
    verdicts = connections.pipelines(lambda state: state.verdicts(f"audit {name}"))
    return check_chain(verdicts)


def _chosen(coverage: Coverage, settings: RunSettings) -> Coverage:
    """Return the coverage of the chosen queues."""
    if not settings.queues:
        return coverage
    return Coverage(tuple(one for one in coverage.shards if one.shard.rpartition("#")[0] in settings.queues))


def _compare(
    spark: SparkSession,
    live: DataFrame,
    listing: BrokerListing,
    held: Mapping[str, Position],
    level: set[str],
    coverage: Coverage,
    *,
    live_listing: bool,
) -> list[DataFrame]:
    """Compare open copies with the broker's; without a listing, only with the journals that it has."""
    places = [(shard, position.epoch, position.seq) for shard, position in sorted(held.items())]
    listed = spark.createDataFrame(places, "shard string, epoch string, seq long")
    table = listing.table(spark) if live_listing else spark.createDataFrame([], LISTING)
    vanished = audit_findings.vanished_copies(live, table, listed)
    if not live_listing:
        return [vanished]
    even = spark.createDataFrame([(shard,) for shard in sorted(level)], "shard string")
    extra = table.join(F.broadcast(even), "shard", "left_semi")
    unrecorded = audit_findings.unrecorded_copies(live, extra, unseen_table(spark, coverage))
    return [vanished, audit_findings.lost_copies(live, table, listed), unrecorded]


def _finding(row: Row) -> AuditFinding:
    return msgspec.convert({name: row[name] for name in AuditFinding.__struct_fields__}, AuditFinding)


def _remarks(connections: Connections) -> tuple[str, ...]:
    """Return the reasons why something cannot be known from the journals of this broker."""

    async def best_effort(broker: Broker) -> bool:
        return JOURNAL_PROMISE in broker.partial_promises

    late = "This broker's journal is written after the fact: what it lacks may not have been lost."
    return (late,) if connections.broker(best_effort) else ()
