"""Rows become messages, each of them once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name it goes by in all examples

from godwit.brokers.sqlite import SqliteBroker
from godwit.core.errors import InvalidSetting, RowsRefused
from godwit.core.queues import QueueSpec
from godwit.pipeline.sink.table_check import refuse_bad_rows
from godwit.pipeline.sink.writers import write_options
from tests.pipeline.journals import url_of
from tests.pipeline.oracle import journal_rows
from tests.project.specification import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEDUP = timedelta(milliseconds=1)
"""Over before anything is tried again: only the sink itself can tell what was sent."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "godwit.db"

    async def declare() -> None:
        async with SqliteBroker(path) as broker:
            await broker.declare(QueueSpec(name="orders", dedup_window=DEDUP))
            await broker.declare(QueueSpec(name="mails", dedup_window=DEDUP))

    asyncio.run(declare())
    return path


def arrived(path: Path) -> list[dict[str, Any]]:
    return [row for row in journal_rows(url_of(path)) if row["event"] in ("enqueued", "scheduled")]


def write(frame: DataFrame, path: Path, **options: str) -> None:
    frame.write.format("godwit").mode("append").options(**{"url": url_of(path), **options}).save()


def orders(spark: SparkSession, rows: int, parts: int = 4) -> DataFrame:
    return spark.range(0, rows, 1, parts).select(
        F.col("id").cast("string").alias("key"),
        F.to_json(F.struct(F.col("id").alias("n"))).alias("payload"),
        F.lit("order.created").alias("type"),
    )


def test_every_row_of_a_table_is_a_message_and_writing_it_again_sends_nothing(spark: SparkSession, file: Path) -> None:
    for _ in range(2):
        write(orders(spark, 3_000), file, queue="orders", runId="monday")
    payloads = Counter(row["body"].partition(b'"payload":')[2].partition(b"}")[0] for row in arrived(file))
    assert len(payloads) == 3_000
    assert set(payloads.values()) == {1}
    write(orders(spark, 10), file, queue="orders", runId="tuesday")
    assert len(arrived(file)) == 3_010


def test_columns_say_what_a_message_is(spark: SparkSession, file: Path) -> None:
    due = datetime(2100, 1, 1, tzinfo=UTC)
    frame = spark.createDataFrame(
        [("m-1", "mails", {"to": "a"}, 90, "k", due, {"x": "1"})],
        "id string, queue string, payload map<string,string>, priority int, ordering_key string, "
        "deliver_at timestamp, attributes map<string,string>",
    )
    write(frame, file, runId="one")
    (row,) = arrived(file)
    assert (row["message_id"], row["queue"], row["event"], row["priority"]) == ("m-1", "mails", "scheduled", 90)
    assert row["deliver_at"] == due.timestamp() * 1000
    assert b'"payload":{"to":"a"}' in row["body"]


def test_a_stream_sends_each_row_once(spark: SparkSession, file: Path, tmp_path: Path) -> None:
    source = tmp_path / "in"
    for number in range(3):
        orders(spark, 500, 2).withColumn("key", F.concat(F.lit(f"{number}-"), F.col("key"))).write.mode(
            "append"
        ).parquet(str(source))

    def follow() -> None:
        query = (
            spark.readStream.schema("key string, payload string, type string").option("maxFilesPerTrigger", 2)
            .parquet(str(source)).writeStream.format("godwit").option("url", url_of(file)).option("queue", "orders")
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(120)

    follow()
    assert len(arrived(file)) == 1_500
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()  # as if the driver had died before Spark's own commit
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    follow()
    assert len(arrived(file)) == 1_500


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("'{}' AS payload", {"runId": "r"}, "a column `queue`, or the option queue"),
        ("'{}' AS payload", {"queue": "orders"}, "option runId"),
        ("'{}' AS payload", {"queue": "orders", "runId": "r", "qeue": "x"}, "option is 'qeue'"),
        ("'{}' AS payload, 1 AS colour", {"queue": "orders", "runId": "r"}, "column is 'colour'"),
        ("'{}' AS payload, 'high' AS priority", {"queue": "orders", "runId": "r"}, "type of column priority"),
        ("'{}' AS payload, CAST(NULL AS STRING) AS queue", {"runId": "r"}, "queue '' is not declared"),
        ("'{}' AS payload", {"queue": "oders", "runId": "r"}, "queue 'oders' is not declared"),
        ("CAST(NULL AS STRING) AS payload", {"queue": "orders", "runId": "r"}, "payload is null"),
        ("'{' AS payload", {"queue": "orders", "runId": "r"}, "1 of 1 rows cannot be messages"),
        ("'{}' AS payload, 101 AS priority", {"queue": "orders", "runId": "r"}, "Use a whole number from 0 to 100"),
    ],
)
def test_rows_that_cannot_be_messages_are_refused_before_one_is_sent(
    spark: SparkSession, file: Path, columns: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as refused:
        write(spark.sql(f"SELECT {columns}"), file, **options)
    assert said in str(refused.value)
    assert arrived(file) == []


def test_one_bad_row_holds_back_all_rows_of_its_task(spark: SparkSession, file: Path) -> None:
    bad = F.when(F.col("key") == "900", F.lit(None)).otherwise(F.col("payload"))
    with pytest.raises(PySparkException, match="'key': '900'"):
        write(orders(spark, 1_000, 1).withColumn("payload", bad), file, queue="orders", runId="r")
    assert arrived(file) == []


def test_a_whole_table_is_checked_before_anything_of_it_is_sent(spark: SparkSession, file: Path) -> None:
    table = orders(spark, 1_000, 4)
    assert refuse_bad_rows(table, url_of(file), queue="orders") == 1_000
    bad = F.when(F.col("key").isin("10", "900"), F.lit(None)).otherwise(F.col("payload"))
    with pytest.raises(RowsRefused, match=r"2 of 1,000 rows cannot be messages.*payload is null") as refused:
        refuse_bad_rows(table.withColumn("payload", bad), url_of(file), queue="orders")
    assert [("'10'" in sample, "'900'" in sample) for sample in refused.value.samples] == [(True, False), (False, True)]
    with pytest.raises(InvalidSetting, match="column is 'colour'"):
        refuse_bad_rows(table.withColumn("colour", F.lit(1)), url_of(file), queue="orders")
    assert arrived(file) == []


def test_progress_that_is_written_down_later_is_refused() -> None:
    given = {"url": "sqlite:///godwit.db", "queue": "orders", "asyncProgressTrackingEnabled": "true"}
    with pytest.raises(InvalidSetting, match="option asyncProgressTrackingEnabled"):
        write_options(given, stream=True)
    assert write_options(given | {"asyncProgressTrackingEnabled": "false"}, stream=True).queue == "orders"


SENDER = """
import sys
import pyarrow as pa
from godwit.pipeline.sink.writers import WriteOptions, send
rows = pa.record_batch({"key": [str(n) for n in range(7_000)], "payload": ["{}"] * 7_000})
written = send(WriteOptions(url=sys.argv[1], queue="orders"), iter([rows]), "sink", "000000000001")
print(written.sent, written.before)
"""


@pytest.mark.parametrize("point", ["sink.unsure", "sink.published", "sink.sent"])
def test_a_sender_killed_anywhere_is_finished_by_the_next_long_after_the_dedup_window(file: Path, point: str) -> None:
    codes = []
    for fault in (f"{point}:2", f"{point}:1", ""):
        ran = subprocess.run(
            [sys.executable, "-c", SENDER, url_of(file)],
            cwd=ROOT,
            env={**os.environ, "GODWIT_FAULT": fault},
            check=False,
            timeout=200,
        )
        codes.append(ran.returncode)
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert set(Counter(row["message_id"] for row in arrived(file)).values()) == {1}
    assert len(arrived(file)) == 7_000
