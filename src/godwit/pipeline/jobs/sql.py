"""Questions in SQL over `journal`, `messages` and `deliveries`: the lake, and behind it the live journal.

For people at a terminal only: Spark's SQL can read files and run code, so no API may ever hand a text to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from godwit.pipeline.connections import Connections
from godwit.pipeline.failures import explained
from godwit.pipeline.lake import JOURNAL, Lake
from godwit.pipeline.offsets import chosen_shards
from godwit.pipeline.options import ReadOptions, absolute
from godwit.pipeline.session import LOCAL, spark_session
from godwit.pipeline.starting import as_option
from godwit.pipeline.transforms.views import deliveries, messages

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

VIEWS: Final = ("journal", "messages", "deliveries")


def ask(
    question: str, *, broker_url: str, store_url: str | None, lake: Lake, master: str = LOCAL, limit: int = 100
) -> pa.Table:
    """Return the answer to a question, at most `limit` rows of it."""
    with (
        Connections(broker_url, store_url, feature="pipeline sql") as connections,
        spark_session("godwit sql", master=master) as spark,
        explained(),
    ):
        create_views(spark, connections, lake)
        return spark.sql(question).limit(limit).toArrow()


def create_views(spark: SparkSession, connections: Connections, lake: Lake) -> None:
    """Make the views known to a session."""
    rows = whole_journal(spark, connections, lake)
    rows.createOrReplaceTempView("journal")
    messages(rows).createOrReplaceTempView("messages")
    deliveries(rows).createOrReplaceTempView("deliveries")


def whole_journal(spark: SparkSession, connections: Connections, lake: Lake) -> DataFrame:
    """Return the lake's rows and, behind its position, those that only the live journal has."""
    options = ReadOptions(url=absolute(connections.broker_url))
    files = connections.pipelines(lambda state: state.files(lake.name, JOURNAL))
    places = dict(connections.pipelines(lambda state: state.positions(lake.key)))
    shards = connections.broker(lambda broker: chosen_shards(broker.journal, options))
    known = {shard: place for shard, place in places.items() if shard in shards}
    live = (
        spark.read.format("godwit")
        .option("url", options.url)
        .option("startingOffsets", as_option(known))
        .option("failOnDataLoss", value=False)
        .load()
    )
    return lake.read(spark, files).unionByName(live) if files else live
