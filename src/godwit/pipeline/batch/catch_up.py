"""Publishes everything there is now, batch after batch: a run that ends and has no checkpoint.

It does what Spark's trigger AvailableNow does without a query: there is no source process that must come up within ten
seconds on a busy machine, and no log of offsets. The positions in the store say what is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from godwit.pipeline.source.offsets import Positions, from_offset, to_offset
from godwit.pipeline.source.options import ReadOptions
from godwit.pipeline.source.stream import JournalStream
from godwit.pipeline.spark.metrics import PipelineMetrics, lag_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Read = Callable[[Positions, Positions], "DataFrame"]


def catch_up(
    options: ReadOptions,
    start: Positions,
    read: Read,
    publish: Callable[[DataFrame, int], None],
    *,
    metrics: PipelineMetrics,
    pipeline: str,
) -> None:
    """Publish the rows between `start` and the present ends of the journals."""
    journals = JournalStream(options)
    journals.prepareForTriggerAvailableNow()
    offset, number = to_offset(start), 0
    while (end := journals.latestOffset(offset, journals.getDefaultReadLimit())) != offset:
        began = time.time()
        publish(read(from_offset(offset), from_offset(end)), number)
        metrics.batch(pipeline, number, rows=_rows(offset, end), seconds=time.time() - began, at=began)
        metrics.lag(pipeline, lag_rows(end, journals.reportLatestOffset()))
        offset, number = end, number + 1


def _rows(start: dict[str, Any], end: dict[str, Any]) -> int:
    return sum(
        upto["seq"] - (start[shard]["seq"] if start.get(shard, {}).get("epoch") == upto["epoch"] else 0)
        for shard, upto in end.items()
    )
