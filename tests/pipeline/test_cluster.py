"""The same pipeline on a standalone cluster: a master and two workers, one executor killed with -9."""

from __future__ import annotations

from pathlib import Path

import pytest

from godwit.pipeline.jobs.run import RunSettings
from tests.pipeline.drivers import Driver
from tests.pipeline.making import WrittenJournal, random_history
from tests.pipeline.oracle import assert_agreement
from tests.servers.postgres import fresh_database
from tests.servers.processes import HOST
from tests.servers.spark import spark_cluster

ROWS = 40_000
SPARK = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.mark.timeout(1_200)
def test_an_executor_killed_on_a_cluster_loses_and_doubles_nothing(tmp_path: Path) -> None:
    journal = WrittenJournal(tmp_path / "godwit.db")
    journal.declare("orders", "mails")
    journal.append(list(random_history(["orders", "mails"], ROWS, seed=21)))
    with spark_cluster() as cluster, fresh_database() as store:
        settings = RunSettings(
            broker_url=journal.url, store_url=store, lake=str(tmp_path / "lake"), parts=("archive", "analytics"),
            master=cluster.url, once=True, max_rows=ROWS // 8, spark=SPARK,
        )  # fmt: skip
        driver = Driver(settings)
        driver.until(2)
        assert len(cluster.executors()) == 2
        cluster.kill_executor()
        driver.finished()
        assert assert_agreement(journal.url, store, tmp_path / "lake") >= ROWS
