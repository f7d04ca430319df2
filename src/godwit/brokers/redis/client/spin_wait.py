"""Waiting for a reply awake: for a task that sends one command after the other and has nothing else under way.

Such a task lets its processor fall asleep after each command, and waking it again can take as long as the server's
work. So the connection is asked for the reply again and again for a moment, before the event loop takes over. That is
done only where it pays (the reply before came within that moment) and harms nobody: no other call is under way, the
task is the one that called last, nobody else is ready to run, and the loop has its turn at least every millisecond.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final
from weakref import ref

MOMENT: Final = 200e-6
"""How long to stay awake for one reply: some times what a server on the same machine takes."""
TURN: Final = 1e-3
"""How long the event loop may wait for its turn."""
_MOST_PAUSE: Final = 1_024
POSSIBLE: Final = hasattr(os, "readv") and hasattr(os, "sched_yield")


class SpinWait:
    """Decides for one server's connections when to stay awake."""

    __slots__ = ("_clock", "_left", "_pause", "_task", "_turned")

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._task: ref[asyncio.Task[Any]] | None = None
        """Who called last."""
        self._turned = 0.0
        """When the event loop had its turn last, as far as is known."""
        self._pause = 1
        self._left = 0
        """How many calls go by asleep before the next attempt."""

    def worthwhile(self) -> bool:
        """Say whether the reply to what the running task sends now should be waited for awake."""
        task = asyncio.current_task()
        if task is None or self._task is None or self._task() is not task:
            self._task, self._turned = None if task is None else ref(task), self._clock()
            return False
        # Who is ready is known to asyncio's own loop only; another one may have everybody ready.
        if getattr(task.get_loop(), "_ready", True):
            self._turned = self._clock()
            return False
        if self._left:
            self._left -= 1
            return False
        if (now := self._clock()) - self._turned > TURN:
            self._turned = now  # it has its turn while this call waits
            return False
        return True

    def came(self, *, in_time: bool) -> None:
        """Learn from a reply that was waited for."""
        if in_time:
            self._pause = 1
        else:
            self._turned = self._clock()
            self._left = self._pause = min(2 * self._pause, _MOST_PAUSE)


def read_spinning(fd: int, buffers: list[memoryview]) -> int:
    """Return how many bytes came within a moment; 0 when none did, or when the connection is at its end."""
    until = perf_counter() + MOMENT
    while True:
        os.sched_yield()  # to the server, when it has to share this processor
        try:
            return os.readv(fd, buffers)
        except BlockingIOError:
            if perf_counter() > until:
                return 0
        except OSError:
            return 0  # the event loop will see what is wrong
