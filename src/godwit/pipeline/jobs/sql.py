"""The SQL job: questions over `journal`, `messages` and `deliveries`, from the lake and the live journal.

For people at a terminal only: Spark's SQL can read files and run code, so no API may ever pass it a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from godwit.core.errors import InvalidSetting
from godwit.pipeline.lake.files import Lake
from godwit.pipeline.query.history import history
from godwit.pipeline.source.schema import journal_schema
from godwit.pipeline.spark.connections import Connections
from godwit.pipeline.spark.errors import translate_errors
from godwit.pipeline.spark.session import LOCAL, spark_session
from godwit.pipeline.transforms.views import deliveries, messages

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

VIEWS: Final = ("journal", "messages", "deliveries")


def ask(
    question: str, *, broker_url: str, store_url: str | None, lake: Lake, master: str = LOCAL, limit: int = 100
) -> pa.Table:
    """Return the answer to a question, at most `limit` rows of it."""
    with (
        Connections(broker_url, store_url, feature="pipeline sql") as connections,
        spark_session("godwit sql", master=master) as spark,
        translate_errors(),
    ):
        create_views(spark, connections, lake)
        with naming_the_views():
            return spark.sql(question).limit(limit).toArrow()


@contextmanager
def naming_the_views() -> Iterator[None]:
    """Refuse a table that does not exist with the names of those that do."""
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        table = (error.getMessageParameters() or {}).get("relationName", "?").replace("`", "")
        raise InvalidSetting("a table of the query", table, f"one of the views {', '.join(VIEWS)}") from error


def create_views(spark: SparkSession, connections: Connections, lake: Lake) -> None:
    """Create the views in a session."""
    rows = history(spark, connections, lake, *journal_schema().names)
    rows.createOrReplaceTempView("journal")
    messages(rows).createOrReplaceTempView("messages")
    deliveries(rows).createOrReplaceTempView("deliveries")
