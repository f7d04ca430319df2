"""Supervising worker processes: start them, restart the crashed, pass signals on."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from godwit.core.logs import get_logger

RESTART_PAUSE: Final = 1.0
"""Seconds before a child that died young is started again; it doubles up to the longest pause."""
LONGEST_PAUSE: Final = 30.0
SETTLED_AFTER: Final = 10.0

log = get_logger(__name__)


class Child:
    """A supervised process and when it may be started again."""

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._start = start
        self._pause = RESTART_PAUSE
        self.starts = 0
        self._told = 0
        self.begin()

    def begin(self) -> None:
        """Start the process."""
        self.process = self._start()
        self.started = time.monotonic()
        self.starts += 1
        self._told = 0
        self.restart_at: float | None = None

    def tell(self, number: int, signals: int) -> None:
        """Pass signals on that the process has not had; one that began after the first of them gets it too."""
        while self._told < signals:
            self._told += 1
            if self.process.poll() is None:
                self.process.send_signal(number)

    def look(self, now: float) -> None:
        """Notice a crash, and start again when it is time."""
        if self.restart_at is not None:
            if now >= self.restart_at:
                self.begin()
            return
        code = self.process.poll()
        if code is None:
            return
        if now - self.started > SETTLED_AFTER:
            self._pause = RESTART_PAUSE
        log.error("worker process died, starting it again", pid=self.process.pid, code=code, in_seconds=self._pause)
        self.restart_at = now + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


class Supervisor:
    """Keeps `processes` copies of a command running until `stop` is called."""

    def __init__(self, command: Sequence[str], processes: int, *, number_in: str) -> None:
        self._command = list(command)
        self._number_in = number_in
        """The environment variable that tells a child its number."""
        self._count = processes
        self._signals = 0
        self._last_signal: int = int(signal.SIGTERM)
        self.children: list[Child] = []

    def run(self) -> int:
        """Supervise; return the number of children that did not end well after the stop."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003
        theirs.setblocking(False)  # noqa: FBT003
        with ours, theirs:
            before = signal.set_wakeup_fd(theirs.fileno())
            try:
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, self._on_signal)
                signal.signal(signal.SIGCHLD, lambda *_: None)  # it only has to wake us
                for place in range(self._count):
                    if not self._signals:
                        self.children.append(Child(partial(self._start, place)))
                while not self._signals:
                    self._tick()
                    self._rest(ours)
                self._pass_on()  # to a child that was just being started when the signal came
                return self._finish()
            finally:
                signal.set_wakeup_fd(before)

    def _rest(self, signals: socket.socket) -> None:
        """Wait for a signal, such as that of a child that ended, or for the time to start one again."""
        times = [child.restart_at for child in self.children if child.restart_at is not None]
        left = None if not times else max(0.0, min(times) - time.monotonic())
        if select.select([signals], [], [], left)[0]:
            signals.recv(4096)

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, self._number_in: str(number)}
        # A group of its own: a Ctrl-C in the terminal reaches the children through us, once.
        return subprocess.Popen(self._command, env=environment, start_new_session=True)  # noqa: S603

    def _tick(self) -> None:
        now = time.monotonic()
        for child in self.children:
            if not self._signals:
                child.look(now)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals += 1
        self._last_signal = number
        self._pass_on()

    def _pass_on(self) -> None:
        for child in self.children:
            child.tell(self._last_signal, self._signals)

    def _finish(self) -> int:
        return sum(child.process.wait() not in {0, -signal.SIGTERM} for child in self.children)
