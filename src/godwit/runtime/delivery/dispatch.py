"""Handlers that have not begun, in a line, and the tasks that begin them: few tasks for many messages.

A task costs more than all else a worker does for a message whose handler never waits. So one task begins handler after
handler, each in a context of its own, as long as they end without waiting. The first that waits keeps the task for
itself, others go on with the line: a waiting handler is alone in its task, as its time limit and its cancellation want.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from godwit.runtime.delivery.in_flight import HeldDelivery

Begin = Callable[[deque[HeldDelivery], "asyncio.Task[None]"], Coroutine[Any, Any, None] | None]
"""Runs handlers from the front of the line until one waits or none is left; returns what is left of that one."""


class HandlerQueue:
    """What one consumer has pulled and not begun, and who begins it."""

    def __init__(self, begin: Begin, running: set[asyncio.Task[None]], *, ended: Callable[[], None]) -> None:
        self._begin = begin
        self._running = running
        """Tasks whose handlers wait; shared with the puller."""
        self._ended = ended
        self._waiting: deque[HeldDelivery] = deque()
        self._waits = False
        """Whether the last handler waited: then the next ones probably do, and begin in tasks of their own at once."""
        self.beginning: set[asyncio.Task[None]] = set()
        """Tasks that will go on with the line at the loop's next turn: never none while a handler stands in it."""

    def __len__(self) -> int:
        """Return how many have not begun."""
        return len(self._waiting)

    def add(self, held: Sequence[HeldDelivery]) -> None:
        """Begin these at the loop's next turn, in this order."""
        self._waiting.extend(held)
        self._go_on()

    def _go_on(self) -> None:
        """Have a task ready for all in the line, or one for each."""
        if not self.beginning:
            create = asyncio.get_running_loop().create_task
            for _ in range(len(self._waiting) if self._waits else min(1, len(self._waiting))):
                self.beginning.add(create(self._run(), name="godwit handler"))

    async def _run(self) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self.beginning.discard(task)
        rest: Coroutine[Any, Any, None] | None = None
        begun = bool(self._waiting) and not task.cancelling()
        try:
            rest = self._begin(self._waiting, task)
        finally:
            self._waits = rest is not None or (self._waits and not begun)
            if rest is not None:
                self._running.add(task)
            self._go_on()
            self._ended()
        if rest is not None:
            try:
                await rest
            finally:
                self._running.discard(task)
                self._ended()

    def hand_back(self) -> int:
        """Give up what has not begun; return how many."""
        count = len(self._waiting)
        for held in self._waiting:
            held.hand_back()
        self._waiting.clear()
        return count
