"""The way of a journal row in docs/architecture.md, from Redis to `queue_analytics`, is the one it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame

from godwit.core.journal.chunks import ChunkOf
from godwit.core.journal.vocabulary import Event
from godwit.pipeline.jobs.run import RunSettings, follow
from godwit.pipeline.source.data_source import GodwitSource
from godwit.pipeline.source.schema import partials_schema
from godwit.pipeline.spark.connections import Connections
from godwit.store.pipelines import Publication
from tests.pipeline.journals import traffic
from tests.servers.postgres import fresh_database
from tests.servers.redis import fresh
from tests.ways import ModuleTrace, drawn, names_one_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MOST_MODULES = 35
EVENTS = [Event.ENQUEUED.value, Event.DELIVERED.value, Event.ACKED.value]


def is_a_row(value: object) -> bool:
    """Say whether a value is a journal row in one of its forms."""
    carriers = (ChunkOf, pa.RecordBatch, pa.Table, DataFrame, Publication)
    return isinstance(value, carriers) or (isinstance(value, bytes) and names_one_of(value, EVENTS))


def test_a_journal_row_takes_the_drawn_way_through_few_modules(spark: SparkSession, tmp_path: Path) -> None:
    url = fresh().url
    traffic(url, messages=30)
    reader = GodwitSource({"url": url, "partials": "true"}).reader(partials_schema())
    partitions = reader.partitions()
    with ModuleTrace(is_a_row) as reading:  # what Spark's workers do, in this process
        assert any(batch.num_rows for partition in partitions for batch in reader.read(partition))
    with fresh_database() as store:
        settings = RunSettings(
            broker_url=url, store_url=store, lake=str(tmp_path / "lake"), parts=("analytics",), once=True
        )
        with ModuleTrace(is_a_row) as driving, Connections(url, store) as connections:
            follow(spark, connections, settings, lambda _outcome: None)
    way = drawn("The way of a journal row")
    assert way == reading.modules | driving.modules, sorted(way ^ (reading.modules | driving.modules))
    assert len(way) < MOST_MODULES
