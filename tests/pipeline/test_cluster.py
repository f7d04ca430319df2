"""The same pipeline on a standalone cluster: a master and two workers, one executor killed with -9.

The executors' Python has no Godwit: the driver sends it along, as docs/howto/spark.md tells.
"""

from __future__ import annotations

import shutil
import venv
from pathlib import Path

import pyspark

from godwit.pipeline.jobs.run import RunSettings
from tests.pipeline.drivers import Driver
from tests.pipeline.journals import WrittenJournal, random_history
from tests.pipeline.oracle import assert_agreement
from tests.project.specification import ROOT
from tests.servers.postgres import fresh_database
from tests.servers.processes import HOST
from tests.servers.spark import spark_cluster

ROWS = 40_000
SPARK = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}


def interpreter_without_godwit(folder: Path) -> Path:
    """Return a Python that has all that Godwit needs, and not Godwit, as on a machine of a cluster."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # A folder named in a .pth file is searched, but its own .pth files, which say where Godwit is, are not read.
    (packages / "dependencies.pth").write_text(str(Path(pyspark.__file__).parent.parent))
    return folder / "bin" / "python"


def packed(folder: Path) -> str:
    """Put Godwit in a folder `site`, as `pip install --target site` does, and pack it; return the archive's name."""
    for package in ("godwit", "pyspark_godwit"):
        shutil.copytree(ROOT / "src" / package, folder / "site" / package)
    shutil.make_archive(str(folder / "site"), "zip", folder / "site")
    return "site.zip#site"


def test_an_executor_killed_on_a_cluster_that_was_sent_godwit_loses_and_doubles_nothing(
    tmp_path: Path, archive: str
) -> None:
    journal = WrittenJournal(tmp_path / "godwit.db")
    journal.declare("orders", "mails")
    journal.append(list(random_history(["orders", "mails"], ROWS, seed=21)))
    python = interpreter_without_godwit(tmp_path / "python")
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData {archive}"
    spark = {
        **SPARK,
        "spark.executor.extraJavaOptions": options,
        "spark.archives": packed(tmp_path),
        "spark.executorEnv.PYTHONPATH": "site",
    }
    with spark_cluster() as cluster, fresh_database() as store:
        settings = RunSettings(
            broker_url=journal.url, store_url=store, lake=str(tmp_path / "lake"), parts=("archive", "analytics"),
            master=cluster.url, once=True, max_rows=ROWS // 4, spark=spark,
        )  # fmt: skip
        driver = Driver(
            settings, python=python, folder=tmp_path,
            environment={"PYTHONPATH": f"site:{ROOT}", "PYSPARK_PYTHON": str(python)},
        )  # fmt: skip
        driver.until(2)
        assert len(cluster.executors()) == 2
        cluster.kill_executor()
        driver.finished()
        assert assert_agreement(journal.url, store, tmp_path / "lake") >= ROWS
