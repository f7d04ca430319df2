"""A step that a caller waits for, and what steps of one owner are carried out with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from typing import Any, Final, Protocol

Step = Callable[[Any], Any]
"""Takes what the owner's `StepRunner` gives it."""


class StepRunner(Protocol):
    """Carries out steps inside a transaction, with whatever the owner's steps work with."""

    def run(self, step: Step) -> Any:
        """Carry out one step."""

    def rolled_back(self) -> None:
        """Forget what was read of steps that did not happen."""

    def committed(self) -> None:
        """Tell others of what has been committed; called in the thread that did, without the file lock."""


class WriterCall:
    """A step, who waits for it, and how it ended."""

    __slots__ = ("abandoned", "carried_out", "deadline", "durable", "error", "future", "lost", "name", "result", "step")

    def __init__(
        self,
        name: str,
        step: Step,
        future: asyncio.Future[Any] | ThreadFuture[Any],
        *,
        durable: bool = False,
        lost: Callable[[Any], None] | None = None,
    ) -> None:
        self.name = name
        self.step = step
        self.future = future
        self.durable = durable
        self.lost = lost
        """Called with the result when its caller is gone."""
        self.deadline = 0.0
        self.abandoned = False
        self.carried_out = False
        self.result: Any = None
        self.error: BaseException | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether the caller still waits."""
        return not self.abandoned and not self.future.cancelled()


NO_CALLER: Final[ThreadFuture[Any]] = ThreadFuture()
"""The future of calls whose callers look for themselves."""
