"""The journal rows of a run: the columns its parts need, or partial sums where all parts need only those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from godwit.core.journal.shards import Position
from godwit.pipeline.batch.parts import BatchPart, rows_beyond
from godwit.pipeline.batch.rollup import advances
from godwit.pipeline.source.offsets import Positions, to_option
from godwit.pipeline.source.options import ReadOptions
from godwit.pipeline.source.schema import columns, journal_schema, partials_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader


class JournalInput:
    """Reads the journals of a run: once between two positions, or as they grow."""

    def __init__(self, spark: SparkSession, options: ReadOptions, parts: Sequence[BatchPart]) -> None:
        self._spark, self._options = spark, options
        wanted = {name for part in parts for name in part.columns}
        named = columns(*(name for name in journal_schema().names if name in wanted))
        self._schema = partials_schema() if options.partials else named

    def stream(self, start: Positions) -> DataFrame:
        """Return the stream of rows after `start`."""
        stream: DataStreamReader = self._spark.readStream.format("godwit").schema(self._schema)
        return stream.options(
            **self._common_options(), startingOffsets=to_option(start), maxRowsPerTrigger=self._options.max_rows
        ).load()

    def table(self, start: Positions, end: Positions) -> DataFrame:
        """Return the rows between two positions."""
        table: DataFrameReader = self._spark.read.format("godwit").schema(self._schema)
        return table.options(
            **self._common_options(), startingOffsets=to_option(start), endingOffsets=to_option(end)
        ).load()

    def rows_after(self, rows: DataFrame, positions: Positions) -> DataFrame:
        """Return the rows of a batch after a position; partial sums cannot be split, so they are made again."""
        if not self._options.partials:
            return rows_beyond(rows, positions)
        start, end = Positions(), Positions()
        for advance in advances(rows.toArrow(), accept_loss=not self._options.fail_on_data_loss):
            position = positions.get(advance.shard)
            seen = position.seq if position is not None and position.epoch == advance.epoch else 0
            if seen < advance.last:
                start[advance.shard] = Position(advance.epoch, max(seen, advance.first - 1))
                end[advance.shard] = Position(advance.epoch, advance.last)
        return self.table(start, end)

    def _common_options(self) -> dict[str, str | bool]:
        options = self._options
        return {
            "url": options.url,
            "queues": ",".join(options.queues),
            "failOnDataLoss": options.fail_on_data_loss,
            "partials": options.partials,
        }
