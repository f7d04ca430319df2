"""Spark's progress as Prometheus metrics: a streaming listener that counts, and the text exposition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from godwit.core.logs import get_logger
from godwit.pipeline.spark.errors import tolerate_failure
from godwit.telemetry import exposition
from godwit.telemetry.instruments import Family, Histogram, Merge, MetricKind, Numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = get_logger(__name__)
BATCH_SECONDS: Final = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)


class PipelineMetrics:
    """The metrics of a pipeline's query; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        name = ("pipeline",)
        self._rows = Numbers("godwit_pipeline_rows_total", MetricKind.COUNTER, name, "Journal rows published.")
        self._batches = Numbers("godwit_pipeline_batches_total", MetricKind.COUNTER, name, "Batches published.")
        self._seconds = Histogram(
            "godwit_pipeline_batch_duration_seconds", name, "How long a batch took, from plan to commit.", BATCH_SECONDS
        )
        self._rate = Numbers(
            "godwit_pipeline_rows_per_second", MetricKind.GAUGE, name, "Rows a second in the last batch.", Merge.SUM
        )
        self._lag = Numbers(
            "godwit_pipeline_lag_rows",
            MetricKind.GAUGE,
            ("pipeline", "shard"),
            "Rows of a shard behind the last batch.",
        )
        self._last = Numbers(
            "godwit_pipeline_last_batch_timestamp_seconds", MetricKind.GAUGE, name, "When the last batch began."
        )
        self._noted: dict[int, int] = {}
        self._running = Numbers("godwit_pipeline_running", MetricKind.GAUGE, name, "1 while the query runs, else 0.")

    @property
    def families(self) -> tuple[Family, ...]:
        """Every metric, in the order of the exposition."""
        return (self._rows, self._batches, self._seconds, self._rate, self._lag, self._last, self._running)

    def running(self, pipeline: str, *, yes: bool) -> None:
        """Record whether a query runs."""
        with self._lock:
            self._running.put((pipeline,), float(yes))

    def note(self, batch: int, rows: int) -> None:
        """Record how many journal rows a batch has; Spark counts only the rows it was given, which may be sums."""
        with self._lock:
            self._noted[batch] = rows

    def batch(self, pipeline: str, batch: int, *, rows: int, seconds: float, at: float) -> int:
        """Count a batch with the rows noted for it, or with `rows` if none were; return the number."""
        with self._lock:
            read = self._noted.pop(batch, rows)
            self._rows.add((pipeline,), read)
            self._batches.add((pipeline,), 1)
            self._seconds.observe((pipeline,), [seconds])
            self._rate.put((pipeline,), read / seconds if seconds else 0.0)
            self._last.put((pipeline,), at)
        return read

    def lag(self, pipeline: str, left: Mapping[str, int]) -> None:
        """Record how many rows each shard is behind."""
        with self._lock:
            for shard, rows in left.items():
                self._lag.put((pipeline, shard), rows)

    def render(self, *, open_metrics: bool = False) -> str:
        """Return all metrics as text."""
        with self._lock:
            return exposition.render(self.families, open_metrics=open_metrics)


class ProgressListener(StreamingQueryListener):
    """A listener on a session's queries that updates the metrics of one pipeline."""

    def __init__(self, metrics: PipelineMetrics, pipeline: str) -> None:
        self._metrics, self._pipeline = metrics, pipeline

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802, ARG002 # Spark's name
        """Record that the query runs."""
        self._metrics.running(self._pipeline, yes=True)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 # Spark's name
        """Count a batch and update the lag of its shards."""
        progress = event.progress
        seconds = progress.durationMs.get("triggerExecution", 0) / 1000
        rows = self._metrics.batch(
            self._pipeline, progress.batchId, rows=max(0, progress.numInputRows), seconds=seconds,
            at=_instant(progress.timestamp),
        )  # fmt: skip
        left = {
            shard: lag
            for source in progress.sources
            for shard, lag in lag_rows(_offset(source.endOffset), _offset(source.latestOffset)).items()
        }
        self._metrics.lag(self._pipeline, left)
        log.info(
            "pipeline batch", pipeline=self._pipeline, batch=progress.batchId, rows=rows, seconds=round(seconds, 3),
            lag=sum(left.values()),
        )  # fmt: skip

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 # Spark's name
        """Ignore an idle query."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802, ARG002 # Spark's name
        """Record that the query ended."""
        self._metrics.running(self._pipeline, yes=False)


@contextmanager
def metrics_listener(spark: SparkSession, metrics: PipelineMetrics, pipeline: str) -> Iterator[None]:
    """Update a pipeline's metrics from Spark's progress events while the block runs."""
    listener = ProgressListener(metrics, pipeline)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        with tolerate_failure("taking a listener away"):
            spark.streams.removeListener(listener)


def lag_rows(end: Mapping[str, Any], latest: Mapping[str, Any]) -> dict[str, int]:
    """Return how many rows of each shard lie between a batch's end and the journal's end; both are offsets."""
    return {
        shard: max(0, int(position["seq"]) - int(end[shard]["seq"]) if shard in end else int(position["seq"]))
        for shard, position in latest.items()
    }


def _offset(text: Any) -> dict[str, Any]:
    if not isinstance(text, str) or not text.startswith("{"):
        return {}
    offset: dict[str, Any] = json.loads(text)
    return offset


def _instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
