"""Checks a whole table before the first of its rows is sent.

Spark shows a sink its rows task by task, so one task may refuse its rows after another has sent. `refuse_bad_rows`
gives all or nothing: one pass over the table, the same checks as the sink's, samples of the refused rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from godwit.core.errors import RowsRefused
from godwit.pipeline.sink.row_messages import SAMPLES, RowMessages, check_schema
from godwit.pipeline.source.options import absolute_url
from godwit.pipeline.spark.sync_broker import SyncBroker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

VERDICT: Final = "bad long, rows long, samples array<string>"


def refuse_bad_rows(table: DataFrame, url: str, *, queue: str | None = None) -> int:
    """Return the number of rows of a table; raise `RowsRefused` when one of them cannot be a message."""
    check_schema(table.schema, queue)
    with SyncBroker(absolute_url(url)) as opened:
        known = frozenset(queue_stats.name for queue_stats in opened.do(lambda broker: broker.stats()))

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        messages = RowMessages("check", queue, known)
        for batch in batches:
            messages.add(batch)
            messages.drop_messages()
        yield pa.RecordBatch.from_pylist(
            [{"bad": messages.bad, "rows": messages.rows, "samples": messages.samples}],
            pa.schema([("bad", pa.int64()), ("rows", pa.int64()), ("samples", pa.list_(pa.string()))]),
        )

    results = table.mapInArrow(check, VERDICT).collect()
    bad, rows = (sum(int(part[name]) for part in results) for name in ("bad", "rows"))
    if bad:
        samples = [sample for part in results for sample in part.samples]
        raise RowsRefused(bad, rows, tuple(samples[:SAMPLES]))
    return rows
