"""Spark's JVM: started within a deadline, and killed when it does not stop.

pyspark's own starter waits without a limit for a JVM that neither comes up nor fails, and runs Python between fork and
exec in a process that has threads. `start` runs the same command, waits for it and kills it when it is too late;
pyspark then connects to it as it does below `spark-submit`. In a process that `spark-submit` started, that JVM is used
and left running.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from godwit.core.errors import SparkUnavailable

START_SECONDS: Final = 120.0
"""How long a JVM may take to come up; two seconds on a quiet machine."""
STOP_SECONDS: Final = 20.0
LOG_CHARACTERS: Final = 2_000
PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_POLL_SECONDS: Final = 0.02


class Jvm:
    """A JVM that accepts connections from Python; `process` is None when `spark-submit` started it."""

    def __init__(self, process: subprocess.Popen[bytes] | None, port: int, secret: str) -> None:
        self.process, self.port, self.secret = process, port, secret

    def connect(self) -> Any:
        """Return pyspark's gateway to the JVM."""
        from pyspark.java_gateway import launch_gateway

        with _environment({PORT: str(self.port), SECRET: self.secret}):
            return launch_gateway()  # type: ignore[no-untyped-call]

    def end(self, seconds: float = STOP_SECONDS) -> None:
        """Close the JVM's standard input, which ends it; kill it when it has not ended within `seconds`."""
        if self.process is None:
            return
        self._close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the JVM; calls that wait for its answer fail."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._close()

    def _close(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()


def find_java() -> str | None:
    """Return the Java that Spark's own scripts would start; None without one."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def start_jvm(conf: Mapping[str, str], folder: Path, *, options: str = "", seconds: float = START_SECONDS) -> Jvm:
    """Start a JVM, or use the one of `spark-submit`; its output goes to `jvm.log` in `folder`."""
    if PORT in os.environ:
        return Jvm(None, int(os.environ[PORT]), os.environ[SECRET])
    connection_file, log = folder / "gateway", folder / "jvm.log"
    with log.open("ab") as file:
        process = subprocess.Popen(  # noqa: S603 # pyspark's own command
            _command(conf),
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            env=_environment_of(folder, connection_file, options),
            process_group=0,  # Ctrl-C is for the driver, which ends it in its own time
        )
    try:
        _wait_for_file(process, connection_file, log, seconds)
        port, secret = _read_connection_file(connection_file)
    except BaseException:
        Jvm(process, 0, "").kill()
        raise
    return Jvm(process, port, secret)


def finishes_within(seconds: float, call: Callable[[], object]) -> bool:
    """Run a call that may never return on a thread; say whether it returned in time."""
    thread = threading.Thread(target=call, name="godwit spark end", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def log_tail(log: Path) -> str:
    """Return the end of a JVM's log."""
    with suppress(OSError):
        return log.read_text(encoding="utf-8", errors="replace")[-LOG_CHARACTERS:].strip()
    return ""


def _command(conf: Mapping[str, str]) -> list[str]:
    from pyspark.find_spark_home import _find_spark_home

    settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    submitted = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return [str(Path(_find_spark_home()) / "bin" / "spark-submit"), *settings, *submitted]


def _environment_of(folder: Path, connection_file: Path, options: str) -> dict[str, str]:
    """Return the environment of a JVM and of the Python processes it starts.

    Those processes keep their bytecode in the run folder when they may keep it nowhere else: Spark gives some of them
    ten seconds to come up, and compiling pyspark every time takes a good part of that.
    """
    environment = {
        "PYSPARK_PYTHON": sys.executable,  # else workers are whichever python3 is found first
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "SPARK_LAUNCHER_OPTS": options,
        **os.environ,
    }
    if environment.pop("PYTHONDONTWRITEBYTECODE", None) is None and "PYTHONPYCACHEPREFIX" not in os.environ:
        del environment["PYTHONPYCACHEPREFIX"]
    return environment | {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file)}


def _wait_for_file(process: subprocess.Popen[bytes], connection_file: Path, log: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not connection_file.exists():
        if process.poll() is not None:
            raise SparkUnavailable(f"its JVM ended at once: {log_tail(log)}", "Mend what it says.")
        if time.monotonic() > deadline:
            output = log_tail(log) or "nothing"
            raise SparkUnavailable(
                f"its JVM did not come up within {seconds:.0f} seconds. It said: {output}",
                "Try again when the machine has less to do.",
            )
        time.sleep(_POLL_SECONDS)


def _read_connection_file(connection_file: Path) -> tuple[int, str]:
    """Return the port and the secret from the connection file; the JVM renames the file when it is complete."""
    content = connection_file.read_bytes()
    size = int.from_bytes(content[4:8], "big")
    return int.from_bytes(content[:4], "big"), content[8 : 8 + size].decode()


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
