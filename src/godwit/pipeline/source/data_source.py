"""The data source `godwit` of Spark: `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`.

Spark finds the class through `pyspark_godwit`. An instance is made in one process, pickled, and used in others; each
method opens what it needs and closes it before it returns.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from godwit.core.errors import InvalidSetting
from godwit.pipeline.sink.writers import StreamWriter, TableWriter, write_options
from godwit.pipeline.source.decoder import ChunkDecoder
from godwit.pipeline.source.offsets import (
    RowRange,
    check_available,
    chosen_shards,
    ranges,
    resolve_offsets,
    task_ranges,
)
from godwit.pipeline.source.options import ReadOptions, read_options
from godwit.pipeline.source.partial_sums import PartialSums
from godwit.pipeline.source.reader import ChunkConverter, merged, read_batches
from godwit.pipeline.source.schema import arrow_schema, check_columns, journal_schema, partials_schema
from godwit.pipeline.source.stream import JournalStream
from godwit.pipeline.spark.sync_broker import SyncBroker

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):
    """The ranges of rows of one task."""

    def __init__(self, wanted: tuple[RowRange, ...]) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class JournalReader(DataSourceReader):
    """Reads journals once, from the starting to the ending offsets."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the ranges; refuse offsets that the journals no longer hold."""
        options = self._options
        with SyncBroker(options.url) as opened:
            shards = opened.ask(lambda journal: chosen_shards(journal, options))
            start = opened.ask(lambda journal: resolve_offsets(journal, options.starting, options))
            end = opened.ask(lambda journal: resolve_offsets(journal, options.ending, options))
        check_available(start, shards, end, fail=options.fail_on_data_loss)
        tasks = task_ranges(ranges(start, end, shards), options.rows_per_partition)
        # Spark takes an empty list as one partition without a value.
        return [RangePartition(task) for task in tasks] or [RangePartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        return _read(self._options, partition, self._schema)


class JournalStreamReader(JournalStream, DataSourceStreamReader):
    """Reads journals as they grow."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options)
        self._schema = arrow_schema(schema)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the ranges between two offsets."""
        return [RangePartition(task) for task in self.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        return _read(self._options, partition, self._schema)


class GodwitSource(DataSource):
    """The format `godwit`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "godwit"

    def schema(self) -> StructType:
        """Return all columns; `.schema()` on the reader chooses some of them."""
        wanted = {name.lower(): value for name, value in self.options.items()}.get("partials", "false")
        return partials_schema() if wanted.strip().lower() == "true" else journal_schema()

    def reader(self, schema: StructType) -> JournalReader:
        """Return a reader of the rows there are now."""
        options = read_options(self.options)
        check_columns(schema, partials=options.partials)
        return JournalReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:  # noqa: FBT001 # Spark's signature
        """Return a writer of a table's rows; there is nothing to overwrite."""
        _only_append(overwrite=overwrite)
        return TableWriter(write_options(self.options, stream=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802, FBT001 # Spark's
        """Return a writer of a stream's rows."""
        _only_append(overwrite=overwrite)
        return StreamWriter(write_options(self.options, stream=True), schema)

    def streamReader(self, schema: StructType) -> JournalStreamReader:  # noqa: N802 # Spark's name
        """Return a reader of the rows that will come."""
        options = read_options(self.options)
        check_columns(schema, partials=options.partials)
        return JournalStreamReader(options, schema)


def _only_append(*, overwrite: bool) -> None:
    if overwrite:
        raise InvalidSetting("mode", "overwrite", 'append: df.write.mode("append"); a message that is sent stays sent')


def _read(options: ReadOptions, partition: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    def converter(shard: str) -> ChunkConverter:
        return PartialSums(shard) if options.partials else ChunkDecoder(schema, shard)

    batches = read_batches(options.url, partition.value, converter, fail_on_data_loss=options.fail_on_data_loss)
    return merged(batches)
