"""Drivers as child processes: started, watched, killed with -9; and what they must not leave behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from godwit.pipeline.jobs.run import RunSettings
from tests.project.specification import ROOT

PATIENCE_SECONDS = 900


class Driver:
    """One driver process in a process group of its own, so that everything it starts is known to be its."""

    def __init__(
        self, settings: RunSettings, *, fault: str = "", module: str = "tests.pipeline.driver",
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, msgspec.json.encode(settings).decode()],
            cwd=ROOT,
            env={**os.environ, "GODWIT_FAULT": fault, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(line.rstrip() for line in self._process.stdout)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def batches(self) -> int:
        return sum(line.startswith("batch") for line in self.lines)

    def until(self, batches: int) -> None:
        """Wait until so many batches are done."""
        self._wait(lambda: self.batches >= batches or self._process.poll() is not None)
        assert self.batches >= batches, "\n".join(self.lines)

    def kill(self) -> None:
        """End it with -9, now."""
        os.kill(self._process.pid, signal.SIGKILL)
        self.end()

    def end(self) -> int:
        """Wait for its end and for the end of everything it started; return how it ended."""
        code = self._process.wait(PATIENCE_SECONDS)
        self._wait(lambda: not members(self._process.pid))
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def died(self) -> None:
        """Check that a fault point ended it."""
        code = self.end()
        assert code == -signal.SIGKILL, "\n".join(self.lines)

    def finished(self) -> None:
        """Check that it came to its end."""
        assert self.end() == 0, "\n".join(self.lines)

    @staticmethod
    def _wait(condition: object) -> None:
        assert callable(condition)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline
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
def class_archive(folder: Path, settings: RunSettings) -> Iterator[dict[str, str]]:
    """Run one driver that writes its JVM's classes to a file; drivers started with it start in half the time."""
    archive = folder / "classes.jsa"
    dumping = {"JDK_JAVA_OPTIONS": f"-XX:ArchiveClassesAtExit={archive}"}
    Driver(settings, environment=dumping).finished()
    yield {"JDK_JAVA_OPTIONS": f"-XX:SharedArchiveFile={archive}"} if archive.exists() else {}
    archive.unlink(missing_ok=True)
