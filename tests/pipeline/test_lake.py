"""The lake: what counts, what is made one, what is swept; and what is asked of it."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from godwit.core.clock import SYSTEM_CLOCK, ManualClock
from godwit.core.errors import PipelineFailed
from godwit.pipeline.jobs.run import RunSettings, follow
from godwit.pipeline.jobs.sql import create_views
from godwit.pipeline.lake.files import Lake
from godwit.pipeline.lake.maintenance import DAY_MS, compact, sweep
from godwit.pipeline.spark.connections import Connections
from godwit.pipeline.spark.errors import translate_errors
from godwit.pipeline.spark.metrics import PipelineMetrics, metrics_listener
from tests.pipeline.journals import BEGIN_MS, WrittenJournal, random_history, traffic, url_of
from tests.pipeline.oracle import assert_agreement, journal_rows
from tests.project.specification import ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_small_files_become_one_and_old_ones_are_swept(spark: SparkSession, tmp_path: Path) -> None:
    journal = WrittenJournal(tmp_path / "godwit.db")
    journal.declare("orders")
    journal.append(list(random_history(["orders"], 1_200, seed=31, hours=1)))
    lake = Lake(str(tmp_path / "lake"), "default")
    settings = RunSettings(
        broker_url=journal.url, store_url=journal.url, lake=str(tmp_path / "lake"), parts=("archive",), once=True,
        max_rows=400, checkpoint=str(tmp_path / "checkpoint"),
    )  # fmt: skip
    metrics = PipelineMetrics()
    with Connections(journal.url, journal.url) as connections:
        with metrics_listener(spark, metrics, "default"):
            follow(spark, connections, settings, lambda _outcome: None)
            # Spark tells its listeners behind the query's back.
            asyncio.run(
                eventually(
                    lambda: 'godwit_pipeline_lag_rows{pipeline="default",shard="orders#0"} 0' in metrics.render(),
                    within=timedelta(seconds=60),
                )
            )
        rows = len(journal_rows(journal.url))
        assert f'godwit_pipeline_rows_total{{pipeline="default"}} {rows}\n' in metrics.render()
        before = connections.pipelines(lambda state: state.files("default", "journal"))
        stray = tmp_path / "lake" / "default" / "journal" / "nobody" / "day=2000-01-01" / "part-0.parquet"
        stray.parent.mkdir(parents=True)
        stray.write_bytes(b"half a file of a killed run")
        assert compact(spark, connections, lake, few=2) > 1
        after = connections.pipelines(lambda state: state.files("default", "journal"))
        assert len(after) < len(before)
        assert sum(file.rows for file in after) == sum(file.rows for file in before)
        assert_agreement(journal.url, journal.url, tmp_path / "lake", analytics=False)
        assert sweep(connections, lake) == 0, "nothing is a day old"
        os.utime(stray, (0, 0))
        assert sweep(connections, lake) == 1
        later = ManualClock(SYSTEM_CLOCK.now_ms() + 2 * DAY_MS)
        sweep(connections, lake, clock=later)
        kept = {str(path.relative_to(tmp_path / "lake" / "default")) for path in (tmp_path / "lake").rglob("*.parquet")}
        assert kept == {file.path for file in after}
        assert_agreement(journal.url, journal.url, tmp_path / "lake", analytics=False)


def test_sql_sees_the_lake_and_the_live_journal_once(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    traffic(path, messages=60, groups=("billing",))
    settings = RunSettings(
        broker_url=url_of(path), store_url=url_of(path), lake=str(tmp_path / "lake"), parts=("archive",), once=True
    )
    lake, metrics = Lake(settings.lake, "default"), PipelineMetrics()
    with Connections(url_of(path), url_of(path)) as connections:
        follow(spark, connections, settings, lambda _outcome: None, metrics=metrics)
    # A run without a query says the same of itself as one with Spark's listener.
    rows = len(journal_rows(url_of(path)))
    assert f'godwit_pipeline_rows_total{{pipeline="default"}} {rows}\n' in metrics.render()
    assert 'godwit_pipeline_batches_total{pipeline="default"} 1\n' in metrics.render()
    assert 'godwit_pipeline_lag_rows{pipeline="default",shard="orders#0"} 0\n' in metrics.render()
    traffic(path, "mails", messages=40, groups=("smtp",))
    with Connections(url_of(path), url_of(path)) as connections:
        create_views(spark, connections, lake)
        told = journal_rows(url_of(path))
        assert spark.table("journal").count() == len(told)
        ended = spark.sql("SELECT outcome, count(*) FROM deliveries GROUP BY outcome").collect()
        ends = ("acked", "nacked", "dead_lettered")
        assert dict(map(tuple, ended)) == {end: sum(row["event"] == end for row in told) for end in ends}
        known = spark.sql("SELECT queue, count(*), sum(copies), sum(acked) FROM messages GROUP BY queue").collect()
        assert {row[0]: row[1] for row in known} == {"orders": 60, "mails": 40}
        acks = Counter(row["queue"] for row in told if row["event"] == "acked")
        assert {row[0]: row[3] for row in known} == acks


def test_an_unreadable_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    journal = WrittenJournal(tmp_path / "godwit.db")
    journal.declare("orders")
    journal.append(list(random_history(["orders"], 50, seed=32, begin_ms=BEGIN_MS)))
    settings = RunSettings(
        broker_url=journal.url, store_url=journal.url, lake=str(tmp_path / "lake"), parts=("archive",), once=True
    )
    lake = Lake(settings.lake, "default")
    with Connections(journal.url, journal.url) as connections:
        follow(spark, connections, settings, lambda _outcome: None)
        files = connections.pipelines(lambda state: state.files("default", "journal"))
        broken = tmp_path / "lake" / "default" / files[0].path
        broken.write_bytes(b"no Parquet")
        (broken.parent / f".{broken.name}.crc").unlink(missing_ok=True)
        with pytest.raises(PipelineFailed, match=r"part-.*\.parquet"), translate_errors():
            lake.read(spark, files).agg({"seq": "max"}).collect()


@pytest.mark.parametrize("folder", ["{}/a/../lake", "file://{}/lake/", "{}/we[i]rd {{x,y}} *?%20#"])
def test_a_lake_lies_in_a_folder_of_any_name(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    lake = Lake(folder.format(tmp_path), "default")
    assert lake.local is not None
    rows = spark.createDataFrame([("a", datetime(2030, 1, 2, tzinfo=UTC))], "name string, at timestamp")
    files = lake.write(rows, "run-1", dataset="names").files
    assert [(file.day, file.rows, (lake.local / file.path).exists()) for file in files] == [("2030-01-02", 1, True)]
    assert lake.read(spark, files, rows.schema).collect()[0]["name"] == "a"


def test_an_address_elsewhere_has_no_slash_too_many() -> None:
    lake = Lake("s3a://bucket/my lake/", "default")
    assert (lake.folder, lake.local) == ("s3a://bucket/my lake/default", None)
    assert lake._relative("s3a://bucket/my%20lake/default/journal/r/day=2030-01-02/p.parquet") == (
        "journal/r/day=2030-01-02/p.parquet"
    )


def test_an_error_of_the_file_system_shows_its_cause(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file where the folder should be")
    rows = spark.createDataFrame([("a", datetime(2030, 1, 2, tzinfo=UTC))], "name string, at timestamp")
    with pytest.raises(PipelineFailed, match=r"not a directory|Mkdirs failed|exists and is not"), translate_errors():
        Lake(str(tmp_path / "lake"), "default").write(rows, "run-1", dataset="names")


def test_every_metric_of_the_pipeline_is_on_the_page_and_no_other() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split(" | ") for line in page.splitlines() if line.startswith("| `godwit_pipeline_")]
    written = [(name.strip().strip("`"), kind, labels) for name, kind, labels, _meaning in rows]
    assert written == [
        (family.name, family.kind.value, ", ".join(family.labels)) for family in PipelineMetrics().families
    ]
