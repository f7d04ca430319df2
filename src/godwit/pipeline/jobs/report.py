"""The report job: on the whole history, or on a period of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from godwit.admin.dead_letters import DeadLetterQueueHandler
from godwit.config.addresses import without_password
from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms
from godwit.core.journal.vocabulary import Event
from godwit.core.queues import QueueSpec
from godwit.pipeline.lake.files import Lake
from godwit.pipeline.query.history import history
from godwit.pipeline.report.advice import GroupLimits
from godwit.pipeline.report.error_texts import error_texts
from godwit.pipeline.report.model import Report, make_report
from godwit.pipeline.spark.connections import Connections
from godwit.pipeline.spark.errors import translate_errors
from godwit.pipeline.spark.session import LOCAL, spark_session
from godwit.pipeline.transforms import report_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READ: Final = (*report_tables.COLUMNS, "body")


class ReportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a report."""

    broker_url: str
    store_url: str | None
    lake: str
    name: str = "default"
    queues: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    master: str = LOCAL


def run_report(settings: ReportSettings, *, clock: Clock = SYSTEM_CLOCK) -> Report:
    """Read the lake and the journal behind it, and return the report."""
    with (
        Connections(settings.broker_url, settings.store_url, feature="A report") as connections,
        spark_session(f"godwit report {settings.name}", master=settings.master) as spark,
        translate_errors(),
    ):
        return report_in_session(spark, connections, settings, clock=clock)


def report_in_session(
    spark: SparkSession, connections: Connections, settings: ReportSettings, *, clock: Clock = SYSTEM_CLOCK
) -> Report:
    """Report in an open session."""
    rows = history(spark, connections, Lake(settings.lake, settings.name), *_READ, queues=settings.queues)
    limits = _limits(rows)
    if settings.since is not None:
        rows = rows.where(rows["at"] >= settings.since)
    if settings.until is not None:
        rows = rows.where(rows["at"] < settings.until)
    texts = connections.broker(lambda broker: error_texts(DeadLetterQueueHandler(broker, clock=clock).letters()))
    rows = rows.select(*report_tables.COLUMNS).persist()
    try:
        return make_report(
            rows,
            source=without_password(settings.broker_url),
            made_at=from_ms(clock.now_ms()),
            limits=limits,
            error_texts=texts,
        )
    finally:
        rows.unpersist()


def _limits(rows: DataFrame) -> dict[tuple[str, str], GroupLimits]:
    """Return the configured limits of each group, by the newest configuration of its queue."""
    created = rows.where(rows["event"].isin(Event.QUEUE_CREATED.value, Event.GROUP_CREATED.value))
    rows_by_seq = sorted(created.select("queue", "group", "seq", "body").collect(), key=lambda row: int(row["seq"]))
    specs = {
        row["queue"]: msgspec.json.decode(bytes(row["body"]), type=QueueSpec)
        for row in rows_by_seq
        if row["group"] is None and row["body"] is not None
    }
    return {
        (row["queue"], row["group"]): GroupLimits(max_size=specs[row["queue"]].max_size, ttl=specs[row["queue"]].ttl)
        for row in rows_by_seq
        if row["group"] is not None and row["queue"] in specs
    }
