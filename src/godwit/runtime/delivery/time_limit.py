"""The time limit of handlers: one timer for all that run, instead of one each."""

from __future__ import annotations

import asyncio
import time


class TimeLimit:
    """Cancels tasks that run longer than `seconds` and remembers that it did."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[asyncio.Task[None], float] = {}
        """Tasks and their deadlines, in order, since all have the same limit."""
        self._late: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, task: asyncio.Task[None], started: float) -> None:
        """Watch a task whose handler began at `started`; those that began earlier came earlier."""
        deadline = self._running[task] = started + self._seconds
        if self._timer is None:
            loop = task.get_loop()
            self._timer = loop.call_later(deadline - time.monotonic(), self._look, loop)

    def leave(self, task: asyncio.Task[None]) -> None:
        """Stop watching."""
        if self._running.pop(task, None) is None:
            self._late.discard(task)

    def is_late(self, task: asyncio.Task[None]) -> bool:
        """Say whether the task was cancelled for its time."""
        return task in self._late

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = time.monotonic()
        for task, deadline in list(self._running.items()):
            if deadline > now:
                self._timer = loop.call_later(deadline - now, self._look, loop)
                return
            del self._running[task]
            self._late.add(task)
            task.cancel()

    def close(self) -> None:
        """Forget everything."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._running.clear()
