"""Rolls partial sums up on the driver: from one small Arrow table to the store's rows and to what was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from godwit.core.errors import JournalLost
from godwit.pipeline.transforms.analytics import PROCESSING, WAITING
from godwit.store.pipelines import HistogramRow, MinuteRow, PipelineAdvance

if TYPE_CHECKING:
    from collections.abc import Iterator

_COUNTS = ("enqueued", "originals", "processed", "failed", "retried", "expired", "delivered")


def advances(partials: pa.Table, *, accept_loss: bool = False) -> list[PipelineAdvance]:
    """Return what was read of each shard; raise `JournalLost` when rows between the first and the last are missing.

    The sum of seqs is checked besides the count, so that a row present twice cannot make up for a missing one.
    """
    shards = partials.group_by(["shard", "epoch"], use_threads=False).aggregate(
        [("n", "sum"), ("first_seq", "min"), ("last_seq", "max"), ("seq_sum", "sum"), ("last_at_ms", "max")]
    )
    read = []
    for row in shards.to_pylist():
        first, last, n = row["first_seq_min"], row["last_seq_max"], row["n_sum"]
        whole = n == last - first + 1 and 2 * row["seq_sum_sum"] == n * (first + last)
        if not whole and not accept_loss:
            raise JournalLost(row["shard"], f"all rows from {first:,} to {last:,}", f"{n:,} of them")
        read.append(
            PipelineAdvance(shard=row["shard"], epoch=row["epoch"], first=first, last=last, at_ms=row["last_at_ms_max"])
        )
    return sorted(read, key=lambda advance: (advance.shard, advance.at_ms))


def minute_rows(partials: pa.Table) -> list[MinuteRow]:
    """Return the minutes of groups, and those of queues, whose group is None."""
    table = partials
    for name, metric in (("processing", PROCESSING), ("waiting", WAITING)):
        chosen = pc.fill_null(pc.equal(table["metric"], metric), False)  # noqa: FBT003 # Arrow's signature
        for suffix, column in (("sum", "value_sum"), ("count", "n")):
            table = table.append_column(f"{name}_{suffix}", pc.if_else(chosen, table[column], 0))
    grouped = table.filter(pc.is_valid(table["group"]))
    return [
        *_minutes(grouped, ["minute", "queue", "group"], "enqueued"),
        *_minutes(table, ["minute", "queue"], "originals"),
    ]


def _minutes(table: pa.Table, keys: list[str], arrivals: str) -> Iterator[MinuteRow]:
    sums = [*_COUNTS, "processing_sum", "processing_count", "waiting_sum", "waiting_count"]
    minutes = table.group_by(keys, use_threads=False).aggregate([*((name, "sum") for name in sums), ("peak", "max")])
    for row in minutes.to_pylist():
        yield (
            row["minute"], row["queue"], row.get("group"), row[f"{arrivals}_sum"], row["processed_sum"],
            row["failed_sum"], row["retried_sum"], row["expired_sum"], row["delivered_sum"],
            row["processing_sum_sum"], row["processing_count_sum"], row["waiting_sum_sum"], row["waiting_count_sum"],
            row["peak_max"],
        )  # fmt: skip


def histogram_rows(partials: pa.Table) -> list[HistogramRow]:
    """Return how many durations are in each bucket."""
    keys = ["minute", "queue", "group", "metric", "bucket"]
    timed = partials.filter(pc.is_valid(partials["metric"]))
    rows: list[dict[str, Any]] = timed.group_by(keys, use_threads=False).aggregate([("n", "sum")]).to_pylist()
    return [(*(row[key] for key in keys), row["n_sum"]) for row in rows]
