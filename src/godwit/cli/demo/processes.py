"""The demo's processes: started, suspended, killed, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from godwit.cli.demo.records import ProcessSettings


class DemoProcess:
    """A process of the demo and how it ended."""

    def __init__(self, part: ProcessSettings, module: str, folder: Path) -> None:
        self.name = part.name
        self.log = folder / f"{part.name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 # our own module
                [sys.executable, "-m", module, msgspec.json.encode(part).decode()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the runner, which then stops the others
            )
        self.killed = False

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._process.poll()

    @property
    def crashed(self) -> bool:
        """Say whether the process ended by itself and with an error."""
        return not self.killed and self.code not in (None, 0)

    def suspend(self) -> None:
        """Suspend the process, so that its leases can be read while it cannot settle them."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Resume the process."""
        os.kill(self.pid, signal.SIGCONT)

    def ask_to_stop(self) -> None:
        """Send SIGTERM: the process finishes its messages and ends."""
        self._process.terminate()

    def wait_or_kill(self, seconds: float) -> None:
        """Wait for the process to end; kill it after `seconds`."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """Kill the process with signal 9."""
        self.killed = True
        self._process.kill()
        self._process.wait()


def stop_all(players: Iterable[DemoProcess], seconds: float = 5) -> None:
    """Ask all running processes to stop; kill those that do not."""
    running = [player for player in players if player.code is None]
    for player in running:
        player.ask_to_stop()
    for player in running:
        player.wait_or_kill(seconds)
