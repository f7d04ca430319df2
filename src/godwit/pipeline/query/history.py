"""The whole history as one table: the lake's rows, followed by the rows that only the journal has so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from godwit.core.journal.shards import Position
from godwit.pipeline.lake.files import JOURNAL, Lake
from godwit.pipeline.source.offsets import to_option
from godwit.pipeline.source.options import absolute_url
from godwit.pipeline.source.schema import columns
from godwit.pipeline.spark.connections import Connections

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def history(
    spark: SparkSession, connections: Connections, lake: Lake, *names: str, queues: Sequence[str] = ()
) -> DataFrame:
    """Return some columns of all rows; rows that were trimmed before they were archived are missing."""
    schema = columns(*names)
    files = connections.pipelines(lambda state: state.files(lake.name, JOURNAL))
    archived = lake.read(spark, files, schema)
    if queues:
        archived = archived.where(archived["queue"].isin(*queues))
    positions = connections.pipelines(lambda state: state.positions(lake.key))
    shards = connections.broker(lambda broker: broker.journal.shards())
    begin = {
        shard: Position(ends.epoch, max(ends.first_seq - 1, _seq(positions.get(shard), ends.epoch)))
        for shard, ends in shards.items()
    }
    reader = spark.read.format("godwit").schema(schema).option("url", absolute_url(connections.broker_url))
    live = (
        reader.option("queues", ",".join(queues))
        .option("startingOffsets", to_option(begin))
        .option("failOnDataLoss", value=False)
        .load()
    )
    return archived.unionByName(live)


def _seq(position: Position | None, epoch: str) -> int:
    return position.seq if position is not None and position.epoch == epoch else 0
