"""The pipeline in one session: numbers over batch borders, late shards, parts alone and together, bad input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from godwit.core.errors import GodwitError, InvalidSetting, JournalLost, PositionGap, StoreRequired
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import Event
from godwit.pipeline.batch.parts import rows_beyond
from godwit.pipeline.batch.publisher import BatchOutcome
from godwit.pipeline.jobs.run import RunSettings, follow, pending, run
from godwit.pipeline.spark.connections import Connections
from godwit.pipeline.spark.session import SMALL
from tests.pipeline.journals import BEGIN_MS, WrittenJournal, random_history, row
from tests.pipeline.oracle import assert_agreement, journal_rows, stored_days
from tests.servers.postgres import fresh_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3_600_000
PARTS = ("archive", "analytics")


class Pipe:
    """A journal, a store, a lake, and the pipeline between them in the session of the tests."""

    def __init__(self, spark: SparkSession, journal: WrittenJournal, store: str, folder: Path) -> None:
        self.spark, self.journal, self.store, self.folder = spark, journal, store, folder
        self.lake = folder / "lake"

    def settings(self, **changes: Any) -> RunSettings:
        return RunSettings(
            **{
                "broker_url": self.journal.url,
                "store_url": self.store,
                "lake": str(self.lake),
                "once": True,
                "parts": PARTS,
                **changes,
            }
        )

    def run(self, **changes: Any) -> list[BatchOutcome]:
        outcomes: list[BatchOutcome] = []
        settings = self.settings(**changes)
        with Connections(settings.broker_url, settings.store_url) as connections:
            follow(self.spark, connections, settings, outcomes.append)
        return outcomes

    def check(self, *, analytics: bool = True, lake: bool = True) -> int:
        return assert_agreement(self.journal.url, self.store, self.lake if lake else None, analytics=analytics)


@contextmanager
def pipe_on(spark: SparkSession, folder: Path, store: str) -> Iterator[Pipe]:
    journal = WrittenJournal(folder / "godwit.db")
    if store == "sqlite":
        yield Pipe(spark, journal, journal.url, folder)
    else:
        with fresh_database() as url:
            yield Pipe(spark, journal, url, folder)


@pytest.fixture
def pipe(spark: SparkSession, tmp_path: Path) -> Iterator[Pipe]:
    with pipe_on(spark, tmp_path, "sqlite") as made:
        yield made


@contextmanager
def as_users_have_it(spark: SparkSession) -> Iterator[None]:
    """Undo what makes tests of a few rows faster: code is generated, plans adapt, shuffles are as by default."""
    for name in SMALL:
        spark.conf.unset(name)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        assert spark.conf.get("spark.sql.codegen.factoryMode") == "FALLBACK"
        assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
        yield
    finally:
        for name, value in SMALL.items():
            spark.conf.set(name, value)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_minutes_days_histograms_and_lake_agree_with_the_journal_over_batch_borders(
    spark: SparkSession, tmp_path: Path, store: str
) -> None:
    with as_users_have_it(spark), pipe_on(spark, tmp_path, store) as pipe:
        pipe.journal.declare("orders", "mails")
        pipe.journal.append(list(random_history(["orders", "mails"], 9_000, seed=1)))
        outcomes = pipe.run(max_rows=4_000)
        assert [outcome.rows for outcome in outcomes][:2] == [4_000, 4_000]
        assert pipe.check() == sum(outcome.rows for outcome in outcomes)
        assert pipe.run() == []


def test_a_shard_two_hours_behind_loses_nothing(pipe: Pipe) -> None:
    pipe.journal.declare("orders", "late")
    pipe.journal.append(list(random_history(["orders"], 3_000, seed=2)))
    pipe.run()
    pipe.journal.append(list(random_history(["late"], 2_000, seed=3, begin_ms=BEGIN_MS - 2 * HOUR)))
    pipe.journal.append(list(random_history(["orders"], 1_000, seed=4, begin_ms=BEGIN_MS + 5 * HOUR)))
    pipe.run(max_rows=1_500)
    pipe.check()


def test_the_oldest_shard_is_read_first_when_not_all_fits(pipe: Pipe) -> None:
    pipe.journal.declare("orders", "late")
    pipe.run()
    pipe.journal.append(list(random_history(["orders"], 1_000, seed=2)))
    pipe.journal.append(list(random_history(["late"], 1_000, seed=3, begin_ms=BEGIN_MS - HOUR)))
    first, *_ = pipe.run(max_rows=1_200)
    assert [(one.shard, one.last - one.first + 1) for one in first.advances] == [("late#0", 1_000), ("orders#0", 200)]


def test_parts_run_alone_and_together_in_any_order(pipe: Pipe) -> None:
    pipe.journal.declare("orders")
    pipe.journal.append(list(random_history(["orders"], 2_000, seed=5)))
    pipe.run(parts=["analytics"], checkpoint=str(pipe.folder / "checkpoint"))  # a streaming query
    pipe.check(lake=False)
    pipe.journal.append(list(random_history(["orders"], 2_000, seed=6, begin_ms=BEGIN_MS + 5 * HOUR)))
    pipe.run(max_rows=2_500)
    pipe.check()
    pipe.journal.append(list(random_history(["orders"], 500, seed=7, begin_ms=BEGIN_MS + 10 * HOUR)))
    pipe.run(parts=["archive"])
    pipe.check(analytics=False)
    pipe.run()
    pipe.check()


def test_rows_that_another_run_counts_meanwhile_are_left_out(pipe: Pipe) -> None:
    pipe.journal.declare("orders")
    pipe.journal.append(list(random_history(["orders"], 3_000, seed=18)))
    settings = pipe.settings(parts=["analytics"], max_rows=1_000)
    rows = []

    def overtaken(outcome: BatchOutcome) -> None:
        rows.append(outcome.rows)
        if outcome.batch == 0:
            pipe.run(parts=["analytics"], max_rows=700)

    with Connections(settings.broker_url, settings.store_url) as connections:
        follow(pipe.spark, connections, settings, overtaken)
    assert rows == [1_000, 0, 0, 0]
    pipe.check(lake=False)


def test_hundreds_of_quiet_queues_share_tasks_and_parts_continue_from_different_positions(pipe: Pipe) -> None:
    queues = [f"q{number}" for number in range(150)]
    pipe.journal.declare(*queues)
    pipe.journal.append(list(random_history(queues, 3_000, seed=20, chunk_rows=8)))
    table = pipe.spark.read.format("godwit").option("url", pipe.journal.url).load()
    assert table.rdd.getNumPartitions() == 1
    pipe.run(parts=["analytics"])
    pipe.journal.append(list(random_history(queues, 1_000, seed=21, begin_ms=BEGIN_MS + 5 * HOUR, chunk_rows=8)))
    pipe.run()
    pipe.check()


def test_positions_of_thousands_of_shards_make_a_plan_that_spark_can_carry_out(spark: SparkSession) -> None:
    shards = [f"q{number}#0" for number in range(3_000)]
    rows = spark.range(3 * len(shards)).selectExpr("concat('q', id div 3, '#0') shard", "'e' epoch", "1 + id % 3 seq")
    positions = {shard: Position("e" if number % 2 else "older", 2) for number, shard in enumerate(shards)}
    left = rows_beyond(rows, positions)
    assert left.columns == rows.columns
    assert left.groupBy("seq").count().orderBy("seq").collect() == [(1, 1_500), (2, 1_500), (3, 3_000)]


@pytest.mark.parametrize("accept_loss", [False, True])
def test_a_shard_that_vanished_does_not_stop_the_pipeline(pipe: Pipe, accept_loss: bool) -> None:
    pipe.journal.declare("orders", "gone")
    pipe.journal.append(list(random_history(["orders", "gone"], 600, seed=22)))
    pipe.run()
    pipe.journal.vanish("gone")
    pipe.journal.append(list(random_history(["orders"], 300, seed=23, begin_ms=BEGIN_MS + 5 * HOUR)))
    outcomes = pipe.run(accept_loss=accept_loss)
    assert [(outcome.rows, outcome.lost) for outcome in outcomes] == [(300, 0)]
    with Connections(pipe.journal.url, pipe.store) as connections:
        held = connections.broker(lambda broker: broker.journal.committed("pipeline default"))
    assert {shard: position.seq for shard, position in held.items()} == {
        "orders#0": len(journal_rows(pipe.journal.url))
    }
    assert pipe.run(accept_loss=accept_loss) == []


def test_two_pipelines_of_other_names_do_not_count_twice(pipe: Pipe) -> None:
    pipe.journal.declare("orders")
    pipe.journal.append(list(random_history(["orders"], 1_000, seed=8)))
    pipe.run()
    pipe.run(name="second")
    pipe.check()


def test_a_checkpoint_that_is_lost_or_older_changes_nothing(pipe: Pipe) -> None:
    import shutil

    checkpoint, older = pipe.folder / "checkpoint", pipe.folder / "older"
    pipe.journal.declare("orders")
    for seed in (9, 10):
        pipe.journal.append(list(random_history(["orders"], 1_000, seed=seed, begin_ms=BEGIN_MS + seed * 5 * HOUR)))
        pipe.run(checkpoint=str(checkpoint), max_rows=1_100)
        if seed == 9:
            shutil.copytree(checkpoint, older)
    shutil.rmtree(checkpoint)
    shutil.copytree(older, checkpoint)
    pipe.journal.append(list(random_history(["orders"], 1_000, seed=12, begin_ms=BEGIN_MS + 60 * HOUR)))
    pipe.run(checkpoint=str(checkpoint), max_rows=1_100)
    pipe.check()
    shutil.rmtree(checkpoint)
    pipe.run(checkpoint=str(checkpoint))
    pipe.check()


def test_a_checkpoint_of_another_pipeline_is_noticed(pipe: Pipe) -> None:
    checkpoint = str(pipe.folder / "checkpoint")
    pipe.journal.declare("orders")
    pipe.journal.append(list(random_history(["orders"], 1_000, seed=13)))
    pipe.run(checkpoint=checkpoint, parts=["archive"])
    pipe.journal.append(list(random_history(["orders"], 10, seed=14, begin_ms=BEGIN_MS + 9 * HOUR)))
    with pytest.raises(PositionGap, match="checkpoint"):
        pipe.run(checkpoint=checkpoint, parts=["archive"], name="other")


def test_rows_that_were_trimmed_stop_the_pipeline_unless_their_loss_is_accepted(pipe: Pipe) -> None:
    pipe.journal.declare("orders")
    pipe.journal.append(list(random_history(["orders"], 1_000, seed=15)))
    pipe.run()
    pipe.journal.append(list(random_history(["orders"], 1_000, seed=16, begin_ms=BEGIN_MS + 5 * HOUR)))
    pipe.journal.drop("orders", 1_500)
    with pytest.raises((JournalLost, GodwitError), match="no longer holds what follows row 1,00"):
        pipe.run()
    outcomes = pipe.run(accept_loss=True)
    left = len(journal_rows(pipe.journal.url))
    assert sum(outcome.rows for outcome in outcomes) == left
    assert sum(outcome.lost for outcome in outcomes) == 2_000 - 1_000 - left


def test_the_peak_and_the_row_of_all_groups_are_right(pipe: Pipe) -> None:
    pipe.journal.declare("orders")
    arrivals = [row(Event.ENQUEUED, message_id=f"m{n}", copy=0, copies=2) for n in range(3)]
    copies = [row(Event.ENQUEUED, message_id=f"m{n}", copy=1, copies=2) for n in range(3)]
    acks = [row(Event.ACKED, message_id=f"m{n}", run_ms=100) for n in range(3)]
    pipe.journal.append(
        [
            ("orders", BEGIN_MS, Event.ENQUEUED, "billing", 3, arrivals),
            ("orders", BEGIN_MS, Event.ENQUEUED, "mail", 8, copies),
            ("orders", BEGIN_MS + 9 * 60_000, Event.ACKED, "billing", 0, acks),
        ]
    )
    pipe.run(max_rows=4)
    day = "2099-12-31"
    found = stored_days(pipe.store)
    assert found[day, "orders", "billing"][:2] == (3, 3)
    assert found[day, "orders", "mail"][:2] == (3, 0)
    assert found[day, "orders", None][:2] == (3, 3)
    assert [found[day, "orders", group][7] for group in ("billing", "mail", None)] == [3, 8, 8]
    assert found[day, "orders", None][8:] == (10, 0.3)


def test_how_many_rows_wait_is_known_before_spark_starts(pipe: Pipe) -> None:
    pipe.journal.declare("orders", "mails")
    pipe.journal.append(list(random_history(["orders", "mails"], 1_000, seed=19)))

    def waiting(**changes: Any) -> int:
        with Connections(pipe.journal.url, pipe.store) as connections:
            return pending(connections, pipe.settings(**changes))

    assert waiting() == len(journal_rows(pipe.journal.url)) > 1_000
    pipe.run(parts=("archive",))
    assert waiting() == len(journal_rows(pipe.journal.url))
    assert waiting(parts=("archive",)) == 0
    pipe.journal.append([("orders", BEGIN_MS, Event.DUPLICATE, None, None, [row(Event.DUPLICATE, message_id="m")] * 7)])
    assert waiting(parts=("archive",)) == 7


def test_the_broker_keeps_what_the_slowest_part_has_not_read(pipe: Pipe) -> None:
    pipe.journal.declare("orders")
    pipe.journal.append(list(random_history(["orders"], 1_000, seed=17)))
    pipe.run()
    with Connections(pipe.journal.url, pipe.store) as connections:
        held = connections.broker(lambda broker: broker.journal.committed("pipeline default"))
    assert held["orders#0"].seq == len(journal_rows(pipe.journal.url))


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"store_url": None}, StoreRequired, "store"),
        ({"parts": ["analitics"]}, InvalidSetting, "analitics"),
        ({"queues": ["oders"]}, GodwitError, "'oders' is not declared"),
    ],
)
def test_bad_settings_are_refused(pipe: Pipe, changes: dict[str, Any], error: type[Exception], said: str) -> None:
    pipe.journal.declare("orders")
    if "queues" in changes:
        with pytest.raises(error, match=said):
            pipe.run(**changes)
    else:
        with pytest.raises(error, match=said):
            run(pipe.settings(**changes))
