"""Journals as tables, read once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame

from godwit.brokers.sqlite import SqliteBroker
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import Event
from godwit.pipeline.source.offsets import RowRange, split, task_ranges
from godwit.pipeline.source.schema import columns
from godwit.pipeline.spark.session import run_folder_of
from tests.pipeline.journals import WrittenJournal, row, traffic, url_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def journal(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("godwit").options(**{"url": url_of(path), **options}).load()


def truth(path: Path, shard: str) -> list[dict[str, Any]]:
    """What the broker itself says, row by row."""

    async def read() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        place: Position | None = None
        async with SqliteBroker(path) as broker:
            while chunks := await broker.journal.read(shard, place, limit=1_000):
                for chunk in map(decode_chunk, chunks):
                    found += rows_of(chunk, shard)
                    place = Position(chunk.epoch, chunk.last_seq)
        return found

    return asyncio.run(read())


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journals") / "godwit.db"
    traffic(path, "orders", messages=500)
    traffic(path, "mails", messages=200, groups=("smtp",))
    return path


def test_a_batch_read_gives_every_row_once(spark: SparkSession, file: Path) -> None:
    found = journal(spark, file, rowsPerPartition="300").select("shard", "seq", "event", "message_id", "body").collect()
    expected = [*truth(file, "orders#0"), *truth(file, "mails#0")]
    assert Counter(map(tuple, found)) == Counter(
        (one["shard"], one["seq"], one["event"], one.get("message_id"), one.get("body")) for one in expected
    )


def test_queues_and_columns_can_be_chosen(spark: SparkSession, file: Path) -> None:
    reader = spark.read.format("godwit").options(url=url_of(file), queues="mails").schema(columns("queue", "seq"))
    table = reader.load()
    assert table.columns == ["queue", "seq"]
    assert {found.queue for found in table.collect()} == {"mails"}


def test_offsets_choose_rows(spark: SparkSession, file: Path) -> None:
    epoch = truth(file, "mails#0")[0]["epoch"]
    places = [f'{{"mails#0": {{"epoch": "{epoch}", "seq": {seq}}}}}' for seq in (10, 15)]
    found = journal(spark, file, queues="mails", startingOffsets=places[0], endingOffsets=places[1])
    assert sorted(found_row.seq for found_row in found.select("seq").collect()) == [11, 12, 13, 14, 15]


def test_an_instant_chooses_the_rows_from_then_on(spark: SparkSession, tmp_path: Path) -> None:
    written = WrittenJournal(tmp_path / "times.db")
    written.declare("orders")
    begin = 4_102_444_800_000  # 2100-01-01, later than the declaration
    written.append(
        [
            ("orders", begin + step * 1_000, Event.DUPLICATE, None, None, [row(Event.DUPLICATE, message_id="m")] * 7)
            for step in range(50)
        ]
    )
    found = journal(spark, written.path, startingOffsets="2100-01-01T00:00:30+00:00")
    assert found.count() == 20 * 7
    assert journal(spark, written.path, startingOffsets="2100-01-01T00:00:29.001+00:00").count() == 20 * 7
    assert journal(spark, written.path, startingOffsets="2101-01-01T00:00:00Z").count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"quues": "orders"}, "option is 'quues'"),
        ({"queues": "oders"}, "Queue 'oders' is not declared"),
        ({"startingOffsets": "yesterday"}, "option startingOffsets is 'yesterday'"),
        ({"startingOffsets": "2026-01-01T00:00:00"}, "an instant with a zone"),
        ({"startingOffsets": "committed"}, "option reader"),
        ({"rowsPerPartition": "0"}, "a whole number from 1"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"startingOffsets": '{"orders#0": {"epoch": "other", "seq": 3}}'}, "no longer holds what follows row 3"),
        ({"url": "kafka://x"}, "No broker has the URL scheme 'kafka'"),
        ({"url": ""}, "option url"),
    ],
)
def test_bad_options_are_refused_before_anything_is_read(
    spark: SparkSession, file: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises((AnalysisException, PythonException)) as refused:
        journal(spark, file, **options).count()
    assert said in str(refused.value)


@pytest.fixture
def trimmed(tmp_path: Path) -> WrittenJournal:
    """Return a journal that lacks its first 100 rows, and has 255 beyond them."""
    written = WrittenJournal(tmp_path / "trimmed.db")
    written.declare("orders")
    start = len(truth(written.path, "orders#0"))
    chunk = [row(Event.DUPLICATE, message_id="m")] * 5
    written.append([("orders", 4_102_444_800_000, Event.DUPLICATE, None, None, [chunk[0]] * (5 - start % 5))])
    written.append([("orders", 4_102_444_800_000, Event.DUPLICATE, None, None, chunk) for _ in range(70)])
    written.drop("orders", 100)
    assert [truth(written.path, "orders#0")[at]["seq"] for at in (0, -1)] == [101, 355]
    return written


def place(epoch: str, seq: int) -> str:
    return f'{{"orders#0": {{"epoch": "{epoch}", "seq": {seq}}}}}'


def test_a_read_stops_with_what_was_lost_or_warns_and_counts(spark: SparkSession, trimmed: WrittenJournal) -> None:
    epoch = truth(trimmed.path, "orders#0")[0]["epoch"]
    with pytest.raises(AnalysisException, match=r"what follows row 40 of epoch .*: 60 rows are lost"):
        journal(spark, trimmed.path, startingOffsets=place(epoch, 40)).count()
    said = warnings(spark)
    accepted = {"failOnDataLoss": "false", "startingOffsets": place(epoch, 40)}
    assert journal(spark, trimmed.path, **accepted).count() == 255
    assert "rows=60" in (new := warnings(spark).removeprefix(said)), new
    assert journal(spark, trimmed.path, **{**accepted, "startingOffsets": place("other", 40)}).count() == 255
    assert "of epoch other" in warnings(spark).removeprefix(said)


def test_a_stream_stops_with_what_was_lost_or_warns_and_counts(
    spark: SparkSession, trimmed: WrittenJournal, tmp_path: Path
) -> None:
    epoch = truth(trimmed.path, "orders#0")[0]["epoch"]

    def followed(checkpoint: str, **options: str) -> int:
        """Follow the journal to its end; return how many rows arrived."""
        arrived: list[int] = []
        stream = spark.readStream.format("godwit").options(url=trimmed.url, **options).load()
        query = (
            stream.writeStream.foreachBatch(lambda rows, _batch: arrived.append(rows.count()))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        return sum(arrived)

    with pytest.raises(StreamingQueryException, match="60 rows are lost"):
        followed("strict", startingOffsets=place(epoch, 40))
    said = warnings(spark)
    assert followed("mild", startingOffsets=place(epoch, 40), failOnDataLoss="false") == 255
    assert "rows=60" in (new := warnings(spark).removeprefix(said)), new
    # What its checkpoint says may be gone as well by the time a query starts again.
    trimmed.append([("orders", 4_102_444_800_000, Event.DUPLICATE, None, None, [row(Event.DUPLICATE)] * 5)] * 4)
    trimmed.drop("orders", 365)
    with pytest.raises(StreamingQueryException, match=r"what follows row 355 of epoch .*: 10 rows are lost"):
        followed("mild")
    assert followed("mild", failOnDataLoss="false") == 10
    assert "rows=10" in (new := warnings(spark).removeprefix(said)), new


def warnings(spark: SparkSession) -> str:
    """Return what Spark's workers have said so far."""
    return (run_folder_of(spark) / "jvm.log").read_text("utf-8")


@pytest.mark.parametrize(
    ("rows", "cores", "tasks"),
    [(1, 2, 1), (50_000, 8, 1), (50_001, 8, 2), (1_000_001, 2, 4), (1_100_000, 2, 6), (1_000_000, 16, 16), (0, 2, 0)],
)
def test_tasks_are_large_and_leave_no_core_without_one(rows: int, cores: int, tasks: int) -> None:
    found = task_ranges([RowRange("a#0", "e", 7, 7 + rows)] if rows else [], None, at_once=cores)
    assert len(found) == tasks
    assert sum(part.rows for task in found for part in task) == rows
    assert task_ranges([RowRange("a#0", "e", 7, 17)], 4) == [(part,) for part in split(RowRange("a#0", "e", 7, 17), 4)]


@pytest.mark.parametrize(
    ("queues", "rows", "tasks"), [(2, 50_000, 2), (1_500, 10, 2), (10_000, 10, 6), (30, 10_000, 2), (300, 1, 1)]
)
def test_quiet_shards_share_tasks(queues: int, rows: int, tasks: int) -> None:
    wholes = [RowRange(f"q{number}#0", "e", 0, rows) for number in range(queues)]
    found = task_ranges(wholes, None, at_once=2)
    assert len(found) == tasks
    assert [part for task in found for part in task] == wholes
