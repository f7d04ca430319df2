"""The pipeline itself: one query whose batches are read once and published by all parts together."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from godwit.core.errors import InvalidSetting, PipelineFailed, listed
from godwit.core.journal.shards import Position
from godwit.core.logs import get_logger
from godwit.core.names import queue_name
from godwit.pipeline.audit.part import AuditPart, audit_key
from godwit.pipeline.audit.set_back import restart_after_set_back
from godwit.pipeline.batch.catch_up import catch_up
from godwit.pipeline.batch.journal_input import JournalInput
from godwit.pipeline.batch.parts import AnalyticsPart, BatchPart, LakePart
from godwit.pipeline.batch.publisher import BatchOutcome, BatchPublisher
from godwit.pipeline.batch.start_position import start_positions
from godwit.pipeline.lake.files import Lake
from godwit.pipeline.lake.maintenance import compact, sweep
from godwit.pipeline.source.offsets import chosen_shards, ranges
from godwit.pipeline.source.options import ReadOptions, absolute_url, reader_of
from godwit.pipeline.spark.connections import Connections
from godwit.pipeline.spark.errors import tolerate_failure, translate_errors
from godwit.pipeline.spark.metrics import PipelineMetrics, metrics_listener
from godwit.pipeline.spark.metrics_server import serve_metrics
from godwit.pipeline.spark.session import LOCAL, run_folder_of, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTS: Final = ("archive", "analytics", "audit")
MANY_ROWS: Final = 1_000_000
"""From this many rows on, slower compilation to faster code pays (3,100,000 rows: 107 s instead of 153)."""
WAIT_SECONDS: Final = 1
CHORE_SECONDS: Final = 600
START_SECONDS: Final = 300
TOO_SLOW: Final = "failed to connect back"
log = get_logger(__name__)


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run. Without a checkpoint it continues from the positions in the store."""

    broker_url: str
    store_url: str | None
    lake: str
    name: str = "default"
    parts: Sequence[str] = PARTS
    queues: Sequence[str] = ()
    master: str = LOCAL
    once: bool = False
    every: timedelta = timedelta(seconds=5)
    max_rows: int = 1_000_000
    checkpoint: str | None = None
    accept_loss: bool = False
    spark: Mapping[str, str] = {}
    metrics_port: int | None = None


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of a run."""

    batches: int
    rows: int
    lost: int = 0
    interrupted: bool = False


def run(settings: RunSettings, *, report: Callable[[BatchOutcome], None] = lambda _outcome: None) -> RunSummary:
    """Run the pipeline until everything is read (`once`), or until it is interrupted."""
    check_settings(settings)
    outcomes: list[BatchOutcome] = []

    def note(outcome: BatchOutcome) -> None:
        outcomes.append(outcome)
        report(outcome)

    with Connections(settings.broker_url, settings.store_url) as connections:
        rows = pending(connections, settings) if settings.once else None
        if rows == 0:
            return RunSummary(batches=0, rows=0)
        interrupted = _stream(connections, settings, note, lasting=rows is None or rows > MANY_ROWS)
    return RunSummary(
        batches=len(outcomes),
        rows=sum(outcome.rows for outcome in outcomes),
        lost=sum(outcome.lost for outcome in outcomes),
        interrupted=interrupted,
    )


def _stream(
    connections: Connections, settings: RunSettings, note: Callable[[BatchOutcome], None], *, lasting: bool
) -> bool:
    """Run the query to its end; say whether it was interrupted."""
    metrics = PipelineMetrics()
    with (
        serve_metrics(connections, metrics, settings.metrics_port),
        spark_session(
            f"godwit pipeline {settings.name}",
            master=settings.master,
            settings=settings.spark,
            lasting=lasting,
        ) as spark,
        metrics_listener(spark, metrics, settings.name),
    ):
        try:
            follow(
                spark, connections, settings, note, metrics=metrics,
                chore=lambda: maintain_lake(spark, connections, settings),
            )  # fmt: skip
            maintain_lake(spark, connections, settings)
        except KeyboardInterrupt:
            return True
    return False


def follow(
    spark: SparkSession,
    connections: Connections,
    settings: RunSettings,
    report: Callable[[BatchOutcome], None],
    *,
    metrics: PipelineMetrics | None = None,
    chore: Callable[[], None] = lambda: None,
) -> None:
    """Publish all there is (`once`), or continue until interrupted, in an open session.

    Spark gives the Python process of a query's source ten seconds to come up (no setting changes that), which is too
    little on a busy machine. Starting the query again is safe: the positions say what is done.
    """
    query_metrics = metrics or PipelineMetrics()

    def note(outcome: BatchOutcome) -> None:
        query_metrics.note(outcome.batch, outcome.rows)
        report(outcome)

    _restart_audit(connections, settings)
    if settings.once and settings.checkpoint is None:
        _catch_up(spark, connections, settings, note, query_metrics)
        return
    patient_until = time.monotonic() + START_SECONDS
    while True:
        try:
            with running_query(spark, connections, settings, note) as query:
                wait_for_end(query, chore)
        except PipelineFailed as failed:
            if TOO_SLOW not in failed.reason or time.monotonic() > patient_until:
                raise
            log.warning("Python did not come up in time, the query begins again", pipeline=settings.name)
        else:
            return


def maintain_lake(spark: SparkSession, connections: Connections, settings: RunSettings) -> None:
    """Compact and sweep the lake, when the run keeps one."""
    if "archive" in settings.parts:
        lake = Lake(settings.lake, settings.name)
        compact(spark, connections, lake)
        sweep(connections, lake)


def pending(connections: Connections, settings: RunSettings) -> int:
    """Return how many rows there are to read; starting Spark for none takes seconds."""
    options = read_options_of(settings)
    _restart_audit(connections, settings)
    positions = start_positions(connections, parts_of(connections, settings), options)
    shards = connections.broker(lambda broker: chosen_shards(broker.journal, options))
    ends = {shard: Position(end.epoch, end.last_seq) for shard, end in shards.items()}
    rows = sum(whole.rows for whole in ranges(positions, ends, shards))
    return rows or int(any(positions[shard] != end for shard, end in ends.items()))  # lost rows have to be reported


def _restart_audit(connections: Connections, settings: RunSettings) -> None:
    """Let the audit read journals anew that the broker set back; refuse to when their loss is not accepted."""
    if "audit" in settings.parts:
        options = read_options_of(settings)
        shards = connections.broker(lambda broker: chosen_shards(broker.journal, options))
        key = audit_key(Lake(settings.lake, settings.name))
        restart_after_set_back(connections, key, shards, accept_loss=settings.accept_loss)


def read_options_of(settings: RunSettings) -> ReadOptions:
    """Return the read options of a run."""
    return ReadOptions(
        url=absolute_url(settings.broker_url), queues=tuple(settings.queues), max_rows=settings.max_rows,
        fail_on_data_loss=not settings.accept_loss, partials=_needs_only_sums(settings),
    )  # fmt: skip


def _needs_only_sums(settings: RunSettings) -> bool:
    """Say whether no part needs rows, so that they are added up where they are read."""
    return set(settings.parts) == {"analytics"}


def check_settings(settings: RunSettings) -> None:
    """Refuse settings that cannot work, before anything is started."""
    queue_name(settings.name)
    for part in settings.parts:
        if part not in PARTS:
            raise InvalidSetting("part", part, f"one of {listed(PARTS)}")


@contextmanager
def running_query(
    spark: SparkSession, connections: Connections, settings: RunSettings, report: Callable[[BatchOutcome], None]
) -> Iterator[StreamingQuery]:
    """Start the query of a pipeline and stop it with the block."""
    parts, options = parts_of(connections, settings), read_options_of(settings)
    journal_input = JournalInput(spark, options, parts)
    publisher = _publisher(connections, settings, parts, journal_input, report)
    stream = journal_input.stream(start_positions(connections, parts, options))
    # Without a given checkpoint there is a new one each time: it only hints where to continue.
    checkpoint = settings.checkpoint or str(run_folder_of(spark) / f"checkpoint-{secrets.token_hex(4)}")
    writer = stream.writeStream.foreachBatch(publisher).option("checkpointLocation", checkpoint)
    every = f"{int(settings.every.total_seconds() * 1000)} milliseconds"
    writer = writer.trigger(availableNow=True) if settings.once else writer.trigger(processingTime=every)
    query = writer.start()
    try:
        with translate_errors(publisher):
            yield query
    finally:
        # An interrupt cuts off a call, and the next one may find the connection to the JVM broken; the JVM ends anyway.
        with tolerate_failure("stopping the query"):
            query.stop()


def _catch_up(
    spark: SparkSession,
    connections: Connections,
    settings: RunSettings,
    report: Callable[[BatchOutcome], None],
    metrics: PipelineMetrics,
) -> None:
    """Publish the rows there are now, and none that come later."""
    parts, options = parts_of(connections, settings), read_options_of(settings)
    journal_input = JournalInput(spark, options, parts)
    publisher = _publisher(connections, settings, parts, journal_input, report)
    with translate_errors(publisher):
        start = start_positions(connections, parts, options)
        catch_up(options, start, journal_input.table, publisher, metrics=metrics, pipeline=settings.name)


def _publisher(
    connections: Connections,
    settings: RunSettings,
    parts: Sequence[BatchPart],
    journal_input: JournalInput,
    report: Callable[[BatchOutcome], None],
) -> BatchPublisher:
    lake = settings.name if {"archive", "audit"} & set(settings.parts) else ""
    return BatchPublisher(
        connections, parts, reader=reader_of(settings.name), lake=lake, accept_loss=settings.accept_loss, report=report,
        unseen=journal_input.rows_after,
    )  # fmt: skip


def parts_of(connections: Connections, settings: RunSettings) -> list[BatchPart]:
    """Return the parts to run; the lake first, so that the others read what it wrote."""
    parts: list[BatchPart] = []
    lake = Lake(settings.lake, settings.name)
    if "archive" in settings.parts:
        parts.append(LakePart(lake, accept_loss=settings.accept_loss))
    if "analytics" in settings.parts:
        parts.append(AnalyticsPart(connections, accept_loss=settings.accept_loss, summed=_needs_only_sums(settings)))
    if "audit" in settings.parts:
        parts.append(AuditPart(connections, lake, accept_loss=settings.accept_loss))
    return parts


def wait_for_end(query: StreamingQuery, chore: Callable[[], None] = lambda: None) -> None:
    """Wait for the query's end, calling `chore` at intervals; raise what ended the query."""
    due = time.monotonic() + CHORE_SECONDS
    while not query.awaitTermination(WAIT_SECONDS):
        if time.monotonic() > due:
            chore()
            due = time.monotonic() + CHORE_SECONDS
