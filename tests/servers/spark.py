"""A private standalone Spark cluster: a master and two workers as child processes on loopback ports."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.servers.class_archive import archive_option
from tests.servers.processes import HOST, accepts, await_server, children, free_ports, start, stop

WORKERS = 2
_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


@dataclass(frozen=True, kw_only=True)
class SparkCluster:
    """A running cluster."""

    url: str
    workers: tuple[subprocess.Popen[bytes], ...]

    def executors(self) -> list[int]:
        """Return the pids of the executors that its workers run now."""
        return [
            pid
            for worker in self.workers
            for pid in children(worker.pid)
            if b"CoarseGrainedExecutorBackend" in _command(pid)
        ]

    def kill_executor(self) -> None:
        """End one executor with -9."""
        os.kill(self.executors()[0], signal.SIGKILL)


@contextlib.contextmanager
def spark_cluster() -> Iterator[SparkCluster]:
    """Run a master and two workers with one core each."""
    folder = Path(tempfile.mkdtemp(prefix="godwit-cluster-"))
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join((_OPTIONS, archive_option(), f"-Djava.io.tmpdir={folder}")),
        "SPARK_LAUNCHER_OPTS": _OPTIONS,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
    }
    port, *pages = free_ports(2 + WORKERS)
    url = f"spark://{HOST}:{port}"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)

        def run(name: str, *arguments: str) -> subprocess.Popen[bytes]:
            program, log = home / "bin" / "spark-class", folder / f"{name}.log"
            process = start([program, *arguments], log, env=environment, cwd=folder)
            stack.callback(stop, process)
            return process

        master = run(
            "master", "org.apache.spark.deploy.master.Master", "--host", HOST, "--port", str(port),
            "--webui-port", str(pages[0]),
        )  # fmt: skip
        await_server(lambda: accepts(port), master, folder / "master.log")
        workers = tuple(
            run(
                f"worker{number}", "org.apache.spark.deploy.worker.Worker", url, "--host", HOST, "--cores", "1",
                "--memory", "1g", "--work-dir", str(folder / f"work{number}"), "--webui-port", str(pages[1 + number]),
            )
            for number in range(WORKERS)
        )  # fmt: skip
        for number, worker in enumerate(workers):
            log = folder / f"worker{number}.log"
            await_server(lambda log=log: "Successfully registered with master" in log.read_text(), worker, log)  # type: ignore[misc]
        yield SparkCluster(url=url, workers=workers)


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
