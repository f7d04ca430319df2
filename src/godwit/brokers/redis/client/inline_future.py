"""A reply whose waiter goes on in the very turn of the event loop in which it comes.

A future wakes the task that waits for it in the next turn, which looks at all sockets once more before: a twentieth of
an awaited publish. Here the connection resumes the task itself, after everything it has read is understood. Otherwise
it is a future with one waiter, as tasks know them (`_asyncio_future_blocking` and the methods below are what they ask
for).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any


class InlineFuture:
    """The replies to commands sent together, for one task."""

    __slots__ = ("_asyncio_future_blocking", "_context", "_error", "_loop", "_replies", "_wake")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._replies: list[Any] | None = None
        self._error: BaseException | None = None
        self._wake: Callable[[InlineFuture], object] | None = None
        self._context: Context | None = None

    # What a task asks for

    def __await__(self) -> Generator[InlineFuture, None, list[Any]]:
        if self._replies is None and self._error is None:
            self._asyncio_future_blocking = True
            yield self
        if self._error is not None:
            raise self._error
        return self._replies  # type: ignore[return-value]  # it is done

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop it belongs to."""
        return self._loop

    def add_done_callback(self, wake: Callable[[InlineFuture], object], *, context: Context | None = None) -> None:
        """Take who waits."""
        self._wake, self._context = wake, context

    def result(self) -> list[Any]:
        """Return the replies, or raise what came instead of them."""
        if self._error is not None:
            raise self._error
        assert self._replies is not None  # noqa: S101
        return self._replies

    def cancel(self, msg: Any | None = None) -> bool:
        """Let the waiter go: its task was cancelled."""
        if self.done():
            return False
        self.set_exception(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))
        return True

    # What the connection does

    def done(self) -> bool:
        """Say whether there is nothing to wait for any more."""
        return self._replies is not None or self._error is not None

    def set_result(self, replies: list[Any]) -> None:
        """Take the replies; `resume` follows in the same turn."""
        self._replies = replies

    def set_exception(self, error: BaseException) -> None:
        """Take what came instead; the waiter learns of it in the next turn, as from a future."""
        self._error = error
        self.resume_soon()

    def resume(self) -> None:
        """Let the waiter go on, now."""
        wake, self._wake = self._wake, None
        if wake is not None:
            if self._context is None:
                wake(self)
            else:
                self._context.run(wake, self)

    def resume_soon(self) -> None:
        """Let the waiter go on in the next turn."""
        wake, self._wake = self._wake, None
        if wake is not None:
            self._loop.call_soon(wake, self, context=self._context)


def resume_all(replies: list[InlineFuture]) -> None:
    """Let all go on, one after the other; when the process is told to stop in between, the others go on later."""
    if len(replies) == 1:
        replies[0].resume()
        return
    while replies:
        try:
            replies.pop(0).resume()
        except BaseException:
            for left in replies:
                left.resume_soon()
            raise
