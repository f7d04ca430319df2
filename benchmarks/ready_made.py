"""The most that any source in Python can give: batches that are ready, handed to Spark as they are.

They are what the journal's source makes of the same rows, in as many tasks, and lie in files that are mapped into
memory: nothing is read from a broker and nothing is decoded. What is left is Spark's own part.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from godwit.pipeline.source.decoder import ChunkDecoder
from godwit.pipeline.source.offsets import RowRange, task_ranges
from godwit.pipeline.source.reader import read_batches
from godwit.pipeline.source.schema import arrow_schema, journal_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT: Final = "ready-made"


class ReadyMade(DataSource):
    """The format `ready-made`; the option `files` names one file for each task."""

    @classmethod
    def name(cls) -> str:
        """Return the word for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Return all columns of a journal."""
        return journal_schema()

    def reader(self, schema: StructType) -> ReadyMadeReader:
        """Return a reader of all columns."""
        del schema
        return ReadyMadeReader(self.options["files"].split(":"))


class ReadyMadeReader(DataSourceReader):
    """Gives batches as they lie in files."""

    def __init__(self, files: list[str]) -> None:
        self._files = files

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each file."""
        return [InputPartition(file) for file in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the batches of a file."""
        with pa.memory_map(partition.value) as source:
            file = pa.ipc.open_file(source)
            for number in range(file.num_record_batches):
                yield file.get_batch(number)


def made(url: str, whole: RowRange, folder: Path) -> str:
    """Write down what the source makes of a range; return the option `files`."""
    # Spark's workers do not find this package by its name.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    schema = arrow_schema(journal_schema())
    files = []
    for number, task in enumerate(task_ranges([whole], None)):
        files.append(str(folder / f"ready-{number}.arrow"))
        with pa.ipc.new_file(files[-1], schema) as file:
            for batch in read_batches(url, task, partial(ChunkDecoder, schema), fail_on_data_loss=True):
                file.write_batch(batch)
    return ":".join(files)
