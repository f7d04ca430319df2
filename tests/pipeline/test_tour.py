"""The Python blocks of docs/howto/spark.md run, in order, in the one session of the tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.project.specification import ROOT
from tests.project.test_docs_run import blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_tour_of_the_spark_page_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Spark's processes have a working folder of their own, so the file is named by its whole path.
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks(ROOT / "docs" / "howto" / "spark.md"):
        if block.kind == "python":
            exec(block.code.replace("sqlite:///tour.db", f"sqlite:///{tmp_path}/tour.db"), names)  # our own page
    assert names["spark"] is spark
    assert "acked" in capsys.readouterr().out
