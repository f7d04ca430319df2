"""Starting and ending Spark: what is refused, and what must not stay behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from godwit.core.errors import GodwitError, JavaRequired, QueueNotFound, SparkUnavailable
from godwit.pipeline.spark.jvm import Jvm
from godwit.pipeline.spark.run_folder import LOCK, PREFIX, run_folder, sweep
from godwit.pipeline.spark.session import check_java, run_folder_of, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_missing_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaRequired, match="openjdk-17-jre-headless"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaRequired, match="JAVA_HOME has none"):
        check_java()


def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaRequired, match="is version 8"):
        check_java()


def test_the_jvms_of_these_tests_map_their_classes(archive: str, jvm: Jvm) -> None:
    assert jvm.process is not None
    assert archive.partition("=")[2] in Path(f"/proc/{jvm.process.pid}/maps").read_text()


def test_a_second_session_in_a_process_is_refused(spark: SparkSession) -> None:
    with pytest.raises(SparkUnavailable, match="has a session already"), spark_session("second"):
        pass


def test_what_spark_writes_by_the_way_is_in_the_folder_of_the_run(spark: SparkSession) -> None:
    folder = run_folder_of(spark)
    assert folder.name.startswith(PREFIX)
    assert (folder / "jvm.log").exists()
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_a_run_folder_goes_with_its_block_and_that_of_a_killed_process_with_the_next(tmp_path: Path) -> None:
    with run_folder(tmp_path) as mine:
        killed = subprocess.run(
            [sys.executable, "-c", _KILLED, str(tmp_path)], capture_output=True, text=True, check=False, timeout=240
        )
        assert killed.returncode == -signal.SIGKILL
        left = tmp_path / killed.stdout.strip()
        assert (left / "something").exists()
        assert sweep(tmp_path) == 1
        assert not left.exists()
        assert (mine / LOCK).exists(), "a folder in use is left alone"
    assert list(tmp_path.iterdir()) == []


_KILLED = """
import os, signal, sys
from pathlib import Path
from godwit.pipeline.spark.run_folder import run_folder
with run_folder(Path(sys.argv[1])) as folder:
    (folder / "something").write_text("")
    print(folder.name, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_errors_of_ours_come_back_from_spark_as_themselves() -> None:
    from godwit.pipeline.spark.errors import translate

    said = "".join(traceback.format_exception_only(QueueNotFound("oders")))
    error = translate(RuntimeError(f"Traceback\n{said} SQLSTATE"))
    assert isinstance(error, GodwitError)
    assert "QueueNotFound" in str(error)
    assert "'oders'" in str(error)
    assert os.linesep not in translate(RuntimeError("[UNRESOLVED_COLUMN] A column is missing\n== SQL ==")).fact


def test_a_step_of_the_end_that_spark_does_not_do_hides_nothing() -> None:
    from py4j.protocol import Py4JNetworkError

    from godwit.pipeline.spark.errors import tolerate_failure

    def ending() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            with tolerate_failure("stopping"):
                raise Py4JNetworkError("Answer from Java side is empty")

    with pytest.raises(KeyboardInterrupt):
        ending()
