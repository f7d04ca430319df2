"""The whole history as one table: what the lake holds, and behind it what only the journal holds so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from godwit.core.journal import Position
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
    """Return some columns of all rows there are; what was trimmed before it was archived is not among them."""
    schema = columns(*names)
    files = connections.pipelines(lambda state: state.files(lake.name, JOURNAL))
    archived = lake.read(spark, files, schema)
    if queues:
        archived = archived.where(archived["queue"].isin(*queues))
    places = connections.pipelines(lambda state: state.positions(lake.key))
    shards = connections.broker(lambda broker: broker.journal.shards())
    begin = {
        shard: Position(ends.epoch, max(ends.first_seq - 1, _seq(places.get(shard), ends.epoch)))
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


def _seq(place: Position | None, epoch: str) -> int:
    return place.seq if place is not None and place.epoch == epoch else 0
