"""Journals added up where they are read: the same sums as counted row by row, wherever ranges begin and end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from godwit.core.errors import JournalDamaged, JournalLost
from godwit.core.journal.chunks import encode_chunk
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import Event
from godwit.pipeline.batch.journal_input import JournalInput
from godwit.pipeline.batch.rollup import advances, histogram_rows, minute_rows
from godwit.pipeline.source.offsets import RowRange, split
from godwit.pipeline.source.options import ReadOptions
from godwit.pipeline.source.partial_sums import PartialSums
from godwit.pipeline.source.reader import read_batches
from godwit.pipeline.source.schema import journal_schema, partials_schema
from godwit.pipeline.spark.sync_broker import SyncBroker
from godwit.pipeline.transforms.analytics import partials
from tests.pipeline.journals import BEGIN_MS, WrittenJournal, random_history
from tests.pipeline.oracle import Expected, journal_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 5_000


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> WrittenJournal:
    written = WrittenJournal(tmp_path_factory.mktemp("summing") / "godwit.db")
    written.declare("orders")
    written.append(list(random_history(["orders"], ROWS, seed=5, hours=0.5)))
    return written


def summed(journal: WrittenJournal, rows: int) -> pa.Table:
    """Return the partials of a journal that is read in ranges of so many rows."""
    with SyncBroker(journal.url) as opened:
        ((shard, ends),) = opened.ask(lambda asked: asked.shards()).items()
    whole = RowRange(shard, ends.epoch, ends.first_seq - 1, ends.last_seq)
    return pa.Table.from_batches(
        read_batches(journal.url, list(split(whole, rows)), PartialSums, fail_on_data_loss=True)
    )


def numbers(table: pa.Table) -> tuple[Any, ...]:
    minutes = {row[:3]: row[3:] for row in minute_rows(table)}
    histogram = {row[:5]: row[5:] for row in histogram_rows(table)}
    return minutes, histogram, list(advances(table))


@pytest.mark.parametrize("rows", [37, 1_000, 2 * ROWS])
def test_minutes_and_histograms_are_those_counted_row_by_row(journal: WrittenJournal, rows: int) -> None:
    expected = Expected(journal_rows(journal.url))
    minutes, histogram, read = numbers(summed(journal, rows))
    assert minutes == expected.minute_table()
    assert histogram == expected.histogram_table()
    assert len(read) == 1


def test_the_same_comes_of_rows_that_spark_adds_up(spark: SparkSession, journal: WrittenJournal) -> None:
    table = spark.read.format("godwit").option("url", journal.url)
    rows = partials(table.load())
    assert numbers(rows.toArrow()) == numbers(summed(journal, ROWS))
    sums = table.option("partials", "true").load()
    assert numbers(sums.toArrow()) == numbers(summed(journal, ROWS))
    assert set(rows.columns) == set(sums.columns) == set(partials_schema().names)


def test_sums_of_which_a_part_was_counted_already_are_made_again(spark: SparkSession, journal: WrittenJournal) -> None:
    with SyncBroker(journal.url) as opened:
        ((shard, ends),) = opened.ask(lambda asked: asked.shards()).items()
    intake = JournalInput(spark, ReadOptions(url=journal.url, partials=True), [])
    batch = intake.table({shard: Position(ends.epoch, 100)}, {shard: Position(ends.epoch, 900)})
    later = read_batches(journal.url, [RowRange(shard, ends.epoch, 333, 900)], PartialSums, fail_on_data_loss=True)
    assert numbers(intake.rows_after(batch, {shard: Position(ends.epoch, 333)}).toArrow()) == numbers(
        pa.Table.from_batches(later)
    )
    assert intake.rows_after(batch, {shard: Position(ends.epoch, 900)}).count() == 0
    assert numbers(intake.rows_after(batch, {shard: Position("another", 333)}).toArrow()) == numbers(batch.toArrow())


def test_a_row_that_is_missing_is_noticed(journal: WrittenJournal) -> None:
    with SyncBroker(journal.url) as opened:
        ((shard, ends),) = opened.ask(lambda asked: asked.shards()).items()
    parts = [RowRange(shard, ends.epoch, 0, 700), RowRange(shard, ends.epoch, 701, 1_000)]
    found = read_batches(journal.url, parts, PartialSums, fail_on_data_loss=True)
    with pytest.raises(JournalLost, match="999 of them"):
        advances(pa.Table.from_batches(found))


def chunk(event: Event, rows: list[list[object]]) -> bytes:
    return encode_chunk("e", 1, BEGIN_MS, event, "orders", "g", "w", 3, rows)


def test_rows_of_an_older_version_have_no_duration() -> None:
    sums = PartialSums("orders#0")
    assert sums.add([chunk(Event.ACKED, [["m", 1], ["m", 2]])], 0, 9) == 2
    (batch,) = sums.remaining()
    assert batch.to_pylist()[0] | {"n": 2, "processed": 2, "metric": None, "bucket": None} == batch.to_pylist()[0]
    assert list(sums.remaining()) == []


def test_a_duration_that_is_no_number_is_damage() -> None:
    sums = PartialSums("orders#0")
    sums.add([chunk(Event.ACKED, [["m", 1, "d", 1, 0, 0, "long"]])], 0, 9)
    with pytest.raises(JournalDamaged, match="orders#0"):
        list(sums.remaining())


def test_buckets_have_the_bounds_that_everybody_computes() -> None:
    sums, values = PartialSums("orders#0"), [*range(3_000), *(10**power for power in range(4, 13))]
    sums.add([chunk(Event.ACKED, [["m", 1, "d", 1, 0, 0, value] for value in values])], 0, 10**6)
    (batch,) = sums.remaining()
    told = {row["bucket"]: row["n"] for row in batch.to_pylist()}
    wanted = [-1 if value < 1 else math.ceil(math.log(value) / math.log(1.02)) for value in values]
    assert told == {bucket: wanted.count(bucket) for bucket in wanted}


def test_the_columns_of_partials_are_no_columns_of_a_journal() -> None:
    assert set(partials_schema().names) - set(journal_schema().names) >= {"n", "minute", "bucket", "seq_sum"}


def test_sums_have_all_their_columns_or_none(spark: SparkSession, journal: WrittenJournal) -> None:
    reader = spark.read.format("godwit").options(url=journal.url, partials="true").schema("n long")
    with pytest.raises(PySparkException, match="schema"):
        reader.load().collect()
