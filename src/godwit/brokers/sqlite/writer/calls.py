"""A step somebody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from typing import Any, Final

from godwit.brokers.sqlite.engine import SqliteEngine

Step = Callable[[SqliteEngine], Any]


class WriterCall:
    """One step, who waits for it, and how it ended."""

    __slots__ = ("abandoned", "carried_out", "deadline", "durable", "error", "future", "lost", "name", "result", "step")

    def __init__(
        self,
        name: str,
        step: Step,
        future: asyncio.Future[Any] | ThreadFuture[Any],
        *,
        durable: bool,
        lost: Callable[[Any], None] | None,
    ) -> None:
        self.name = name
        self.step = step
        self.future = future
        self.durable = durable
        self.lost = lost
        """Called with the result when nobody waits for it any more."""
        self.deadline = 0.0
        self.abandoned = False
        self.carried_out = False
        self.result: Any = None
        self.error: BaseException | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether anybody still waits."""
        return not self.abandoned and not self.future.cancelled()


NOBODY: Final[ThreadFuture[Any]] = ThreadFuture()
"""The future of calls whose callers look for themselves."""
