"""The supervisor of worker processes: a signal reaches every child, whenever it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from godwit.runtime import supervisor
from godwit.runtime.supervisor import Supervisor

LASTING = [sys.executable, "-c", "import signal; signal.pause()"]


class SignalledWhileStarting(Supervisor):
    """A supervisor that gets SIGTERM while it starts one of its children."""

    def __init__(self, at: int, *, after: bool) -> None:
        super().__init__(LASTING, 3, number_in="NUMBER")
        self.at, self.after = at, after
        self.started: list[subprocess.Popen[bytes]] = []

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        if number == self.at and not self.after:
            os.kill(os.getpid(), signal.SIGTERM)
        process = super()._start(number)
        self.started.append(process)
        if number == self.at and self.after:
            os.kill(os.getpid(), signal.SIGTERM)
        return process


@pytest.fixture(autouse=True)
def handlers_restored() -> object:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("after", [False, True], ids=["before it runs", "when it runs"])
@pytest.mark.parametrize("at", range(3))
@pytest.mark.timeout(60)
def test_a_signal_while_children_are_starting_reaches_all_and_ends_the_start(at: int, *, after: bool) -> None:
    running = SignalledWhileStarting(at, after=after)
    try:
        assert running.run() == 0
        assert len(running.started) == at + 1, "no child is started after the signal"
        assert {process.returncode for process in running.started} == {-signal.SIGTERM}
    finally:
        for process in running.started:
            process.kill()
            process.wait()


def test_a_child_that_is_started_again_as_the_signal_comes_gets_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RESTART_PAUSE", 0.05)
    running = SignalledWhileStarting(-1, after=True)
    starts = 0

    def start(number: int) -> subprocess.Popen[bytes]:
        nonlocal starts
        starts += 1
        process = SignalledWhileStarting._start(running, number)
        if starts == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return process

    monkeypatch.setattr(running, "_start", start)
    killer = threading.Timer(0.3, lambda: running.started[0].kill())  # noqa: PLW0108 - none is started yet
    killer.start()
    try:
        assert running.run() == 0
        assert starts == 4
    finally:
        killer.join()
        for process in running.started:
            process.kill()
            process.wait()
