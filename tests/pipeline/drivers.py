"""Drivers as child processes: started, held, watched, killed with -9; and what they must not leave behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from godwit.pipeline.jobs.run import RunSettings
from godwit.pipeline.spark.jvm import PORT, SECRET, Jvm, start_jvm
from godwit.pipeline.spark.run_folder import run_folder
from godwit.pipeline.spark.session import JVM_OPTIONS, configuration
from tests.project.specification import ROOT
from tests.steal_time import calm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_SECONDS = int(os.environ.get("GODWIT_SPARK_TIMEOUT", "500"))
HOLD = "GODWIT_TEST_HOLD"
"""Names a file: a driver waits behind its first batch until it is there."""
WHOLE = "GODWIT_TEST_WHOLE"
"""Set: a fault point ends the JVM and all workers of a driver along with it."""


class Driver:
    """One driver process in a session of its own, so that everything it starts is known to be its.

    With a `jvm` it uses that one, as below `spark-submit`, instead of starting one: a start takes most of its time.
    """

    def __init__(
        self,
        settings: RunSettings | Sequence[str],
        *,
        fault: str = "",
        whole: bool = False,
        jvm: Jvm | None = None,
        hold: Path | None = None,
        module: str = "tests.pipeline.driver",
        python: Path | str = sys.executable,
        folder: Path = ROOT,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.lines: list[str] = []
        self._ended = False
        words = [msgspec.json.encode(settings).decode()] if isinstance(settings, RunSettings) else settings
        variables = {**os.environ, **(environment or {}), "GODWIT_FAULT": fault, HOLD: str(hold or "")}
        variables[WHOLE] = "whole" if whole else ""
        if jvm is not None:
            variables |= {PORT: str(jvm.port), SECRET: jvm.secret}
        self._process = subprocess.Popen(
            [str(python), "-m", module, *words],
            cwd=folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        _started.append(self)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(line.rstrip() for line in self._process.stdout)

    @property
    def batches(self) -> int:
        return sum(line.startswith("batch") for line in self.lines)

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    def until(self, batches: int) -> None:
        """Wait until so many batches are done."""
        until(lambda: self.batches >= batches or self.over)
        assert self.batches >= batches, "\n".join(self.lines)

    def kill(self) -> None:
        """End it and everything it started with -9, now; its number may belong to another process after its end."""
        if self._ended:
            return
        for pid in () if self.over else (self._process.pid, *members(self._process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.end()

    def end(self) -> int:
        """Wait for its end and for the end of everything it started; return how it ended."""
        code = self._process.wait(PATIENCE_SECONDS)
        until(lambda: not members(self._process.pid))
        self._reader.join(PATIENCE_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._ended = True
        return code

    def died(self) -> None:
        """Check that a fault point ended it."""
        code = self.end()
        assert code == -signal.SIGKILL, "\n".join(self.lines)

    def finished(self) -> None:
        """Check that it came to its end."""
        assert self.end() == 0, "\n".join(self.lines)


_started: list[Driver] = []


def kill_all() -> None:
    """End the drivers that a failed test left behind."""
    while _started:
        _started.pop().kill()


def until(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition."""
    deadline = calm() + seconds
    while not condition():
        assert calm() < deadline, "too late"
        time.sleep(0.05)


def members(group: int) -> list[int]:
    """Return the processes of a session: a driver's JVM and Python workers stay in the session it was started in."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == group and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


@contextlib.contextmanager
def lasting_jvm(fault: str = "") -> Iterator[Jvm]:
    """Run a JVM that outlives the drivers which use it, one after the other; `fault` is for its Python workers."""
    with tempfile.TemporaryDirectory() as root, run_folder(Path(root)) as folder:
        conf = configuration("drivers", "local[2]", folder, {}, "error")
        # Set for the start only: a session of this process that is started later must not have the fault too.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GODWIT_FAULT", fault)
            jvm = start_jvm(conf, folder, options=" ".join(JVM_OPTIONS))
        try:
            yield jvm
        finally:
            jvm.kill()


def release() -> None:
    """Stop what a driver that was killed left in the JVM that this process uses and did not start."""
    with _left() as (gateway, context):
        if context is not None:
            context.stop()
            gateway.jvm.org.apache.spark.sql.classic.SparkSession.clearDefaultSession()


@contextlib.contextmanager
def taken_over() -> Iterator[SparkSession | None]:
    """Give the session that a driver that was killed left in the JVM, its queries stopped; None when there is none.

    Starting another one, with Python workers of its own, takes longer than the batch in which the next driver dies.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    with _left() as (gateway, context):
        if context is None:
            yield None
            return
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        java = gateway.jvm.JavaSparkContext.fromSparkContext(context)
        session = SparkSession(SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf())))
        for query in session.streams.active:
            query.stop()
        yield session


@contextlib.contextmanager
def _left() -> Iterator[tuple[Any, Any]]:
    """Give the gateway to the JVM that the environment names, and the context that is in it, if any."""
    if PORT not in os.environ:
        yield None, None
        return
    gateway = Jvm(None, int(os.environ[PORT]), os.environ[SECRET]).connect()
    companion = gateway.jvm.java.lang.Class.forName("org.apache.spark.SparkContext$").getField("MODULE$").get(None)
    left = companion.getActive()
    try:
        yield gateway, left.get() if left.isDefined() else None
    finally:
        gateway.close()
