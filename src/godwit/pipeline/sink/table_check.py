"""A whole table checked before the first of its rows is sent.

Spark shows a sink its rows task by task, so that one task may refuse its rows after another has sent. Whoever wants
all or nothing asks here first: one pass over the table, the same checks as the sink's, samples of what is refused.
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
    """Return how many rows a table has; raises `RowsRefused` when one of them cannot be a message."""
    check_schema(table.schema, queue)
    with SyncBroker(absolute_url(url)) as opened:
        known = frozenset(found.name for found in opened.do(lambda broker: broker.stats()))

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        outgoing = RowMessages("check", queue, known)
        for batch in batches:
            outgoing.add(batch)
            outgoing.let_go()
        yield pa.RecordBatch.from_pylist(
            [{"bad": outgoing.bad, "rows": outgoing.rows, "samples": outgoing.samples}],
            pa.schema([("bad", pa.int64()), ("rows", pa.int64()), ("samples", pa.list_(pa.string()))]),
        )

    found = table.mapInArrow(check, VERDICT).collect()
    bad, rows = (sum(int(part[name]) for part in found) for name in ("bad", "rows"))
    if bad:
        samples = [sample for part in found for sample in part.samples]
        raise RowsRefused(bad, rows, tuple(samples[:SAMPLES]))
    return rows
