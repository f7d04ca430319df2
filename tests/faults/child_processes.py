"""Real processes for tests: forked from a clean, warmed-up parent, and none of them outlives its test."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.process import BaseProcess

from tests.waiting import eventually

# Not fork: the children of a process with threads and open databases would inherit both.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["godwit.brokers.sqlite", "godwit.brokers.redis", "tests.faults.publisher", "tests.faults.worker"]
)
_LONG_SECONDS = 60.0


class ChildProcesses:
    """The processes of one test."""

    def __init__(self) -> None:
        self.members: list[BaseProcess] = []

    def start(self, target: Callable[..., None], *args: object, **options: object) -> BaseProcess:
        """Let a new process run `target`."""
        member = _CONTEXT.Process(target=target, args=args, kwargs=options, daemon=True)
        member.start()
        self.members.append(member)
        return member

    def kill(self, member: BaseProcess) -> None:
        """End a process as a power switch would, and wait until it is gone."""
        member.kill()
        member.join(_LONG_SECONDS)

    def signal(self, member: BaseProcess, number: signal.Signals) -> None:
        """Send a signal."""
        assert member.pid is not None
        os.kill(member.pid, number)

    def kill_all(self) -> None:
        """End the processes that are left."""
        for member in self.members:
            if member.is_alive():
                member.kill()
        for member in self.members:
            member.join(_LONG_SECONDS)

    async def finished(self, *members: BaseProcess, within: timedelta = timedelta(seconds=60)) -> None:
        """Wait until processes have come to their end by themselves, without an error."""
        await eventually(lambda: not any(member.is_alive() for member in members), within=within, what="their end")
        assert [member.exitcode for member in members] == [0] * len(members)
