"""The lake: Parquet files that count once a manifest lists them.

    <folder>/<name>/<dataset>/<run id>/day=2030-01-31/part-....parquet

A run writes into a folder of its own, so that two drivers never write to the same one and the files of a killed driver
do not count. The store lists the files in the transaction that moves the position. Readers use the manifest; files it
does not list are swept after a day. `day` is the UTC day of `at`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from godwit.core.errors import InvalidSetting
from godwit.pipeline.source.schema import journal_schema
from godwit.store.pipelines import LakeFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.types import StructType

JOURNAL: Final = "journal"
DAY: Final = "day"
_PLACE: Final = ("shard", "epoch", "seq", "at")
_DAY_OF: Final = re.compile(r"/day=(\d{4}-\d{2}-\d{2})/")


def _address(folder: str) -> str:
    """Return a folder as Spark names its files: a local one as an absolute path without dots."""
    local = folder.removeprefix("file://") if folder.startswith("file:///") else folder
    return folder.rstrip("/") if "://" in local else os.path.abspath(local)  # noqa: PTH100 # links stay as they are


class WrittenFiles(msgspec.Struct, frozen=True):
    """Files that are written but not listed yet, and the facts about their rows."""

    files: list[LakeFile]
    facts: Any


class Lake:
    """A folder of Parquet files under one name; local, or any address Spark can write to."""

    def __init__(self, folder: str, name: str) -> None:
        if not folder:
            raise InvalidSetting("lake", folder, "a folder, or an address such as s3a://bucket/lake")
        # A folder of its own for each name: lakes in one place must not sweep each other's files.
        self.folder = f"{_address(folder)}/{name}"
        self.name = name

    @property
    def key(self) -> str:
        """The name of the lake's position."""
        return f"lake {self.name}"

    @property
    def local(self) -> Path | None:
        """The folder on this machine; None when it is elsewhere."""
        return Path(self.folder) if "://" not in self.folder else None

    def write(self, rows: DataFrame, run_id: str, *, dataset: str = JOURNAL, day: str = "at") -> WrittenFiles:
        """Write rows to a run's own folder, by the UTC day of column `day`; they count once they are listed."""
        folder = f"{self.folder}/{dataset}/{run_id}"
        # Arithmetic, not a cast to date: the session's zone must not matter.
        days = F.date_from_unix_date(F.expr(f"cast(unix_millis(`{day}`) div 86400000 as int)"))
        rows.withColumn(DAY, days).write.partitionBy(DAY).mode("error").parquet(folder)
        facts = self._facts(rows.sparkSession, folder, rows.schema)
        return WrittenFiles(files=self._files(facts, dataset), facts=facts)

    def read(self, spark: SparkSession, files: Sequence[LakeFile], schema: StructType | None = None) -> DataFrame:
        """Return the rows of listed files; an empty table without any."""
        wanted = journal_schema() if schema is None else schema
        if not files:
            return spark.createDataFrame([], wanted)
        return _reader(spark, wanted).parquet(*(f"{self.folder}/{file.path}" for file in files))

    def _facts(self, spark: SparkSession, folder: str, schema: StructType) -> pa.Table:
        """Return counts of the written rows, as read back: by file and, for journal rows, by shard."""
        rows = _reader(spark, schema).parquet(folder)
        file = [F.col("_metadata.file_path").alias("path"), F.col("_metadata.file_size").alias("size")]
        if not set(_PLACE) <= set(schema.names):
            return rows.select(*file).groupBy("path", "size").agg(F.count("*").alias("n")).toArrow()
        placed = rows.select(*file, "shard", "epoch", "seq", F.unix_millis("at").alias("at_ms"))
        return (
            placed.groupBy("path", "size", "shard", "epoch")
            .agg(
                F.count("*").alias("n"),
                F.min("seq").alias("first_seq"),
                F.max("seq").alias("last_seq"),
                F.sum("seq").alias("seq_sum"),
                F.max("at_ms").alias("last_at_ms"),
            )
            .toArrow()
        )

    def _files(self, facts: pa.Table, dataset: str) -> list[LakeFile]:
        sums = [("n", "sum")]
        if "first_seq" in facts.column_names:
            sums += [("first_seq", "min"), ("last_seq", "max")]
        return [
            LakeFile(
                path=self._relative(row["path"]), dataset=dataset, day=_day_of(row["path"]), rows=row["n_sum"],
                bytes=row["size"], first_seq=row.get("first_seq_min"), last_seq=row.get("last_seq_max"),
            )
            for row in facts.group_by(["path", "size"], use_threads=False).aggregate(sums).to_pylist()
        ]  # fmt: skip

    def _relative(self, address: str) -> str:
        """Return a path as the manifest keeps it: relative, so that a lake can be moved as a whole."""
        if self.local is None:
            return unquote(address).removeprefix(self.folder).lstrip("/")
        return str(Path(unquote(urlsplit(address).path)).relative_to(self.local))


def _reader(spark: SparkSession, schema: StructType) -> DataFrameReader:
    """Return a reader of paths as they are: brackets and braces in a name are no pattern."""
    reader: DataFrameReader = spark.read.schema(schema)
    return reader.options(recursiveFileLookup=True, __globPaths__=False)


def _day_of(path: str) -> str:
    match = _DAY_OF.search(path)
    assert match is not None, path  # noqa: S101 # written by partitionBy
    return match[1]
