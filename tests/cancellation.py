"""Cancelling a call at every point where it waits.

`cancelled_everywhere` runs a call again and again and cancels it at the first suspension, at the second, and so on
until it is through without having got that far. Suspensions of tasks that the call starts itself (`gather`, a shielded
task) count too; it is always the call that is cancelled. After every run `check` looks at what was left behind:

    async def check() -> None:
        assert broker.pool.busy == 0
        assert await broker.stats() == before

    points = await cancelled_everywhere(lambda: broker.publish([envelope()]), check)
    assert points >= 1

A call that returns although it was cancelled, or raises another error than `CancelledError`, fails the test.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, Final

MOST_POINTS: Final = 500
ANSWER_SECONDS: Final = 0.02
"""How long the event loop is held until an answer is there that comes together with the cancellation."""


class Moment(enum.Enum):
    """When, around one suspension, the cancellation comes."""

    AT_ONCE = "as it begins to wait"
    WITH_THE_ANSWER = "in the turn of the event loop in which the answer is read, just before"
    AFTER_THE_ANSWER = "when the answer is there, before the call goes on"


async def cancelled_everywhere(
    call: Callable[[], Awaitable[object]],
    check: Callable[[], Awaitable[object]],
    *,
    moments: tuple[Moment, ...] = tuple(Moment),
    may_return: bool = False,
) -> int:
    """Cancel a call at each of its suspensions, `check` after each; return how many there were.

    `may_return` allows a call that was cancelled to come to its end nevertheless, such as one that closes something.
    """
    for point in range(1, MOST_POINTS):
        reached = False
        for moment in moments:
            try:
                reached |= await cancelled_at(call, point, moment, may_return=may_return)
                await check()
            except BaseException as error:
                error.add_note(f"cancelled at suspension {point}, {moment.value}")
                raise
        if not reached:
            return point - 1
    raise AssertionError(f"The call was suspended more than {MOST_POINTS} times")


async def cancelled_at(
    call: Callable[[], Awaitable[object]], point: int, moment: Moment, *, may_return: bool = False
) -> bool:
    """Run a call and cancel it at one suspension; say whether it got that far."""
    loop = asyncio.get_running_loop()
    run = _Run(point, moment)
    former = loop.get_task_factory()

    def stepped_task(loop: asyncio.AbstractEventLoop, work: Any, **settings: Any) -> asyncio.Task[Any]:
        if (ours := _present.get()) is not None and asyncio.iscoroutine(work):
            work = _SteppedCoroutine(work, ours)
        return asyncio.Task(work, loop=loop, **settings) if former is None else former(loop, work, **settings)  # type: ignore[return-value]

    loop.set_task_factory(stepped_task)
    token = _present.set(run)
    try:
        run.task = loop.create_task(_awaited(call))
    finally:
        _present.reset(token)
    try:
        await asyncio.wait([run.task])
    finally:
        run.over = True
        loop.set_task_factory(former)
        run.task.cancel()
    if run.task.cancelled():
        assert run.cancelled, "the call ended as cancelled, and nobody had cancelled it"
        return True
    run.task.result()  # any other error than CancelledError is one of the call
    assert may_return or not run.cancelled, "the call returned although it was cancelled"
    return run.reached


class _Run:
    """One run of a call: it is cancelled at suspension `point`."""

    def __init__(self, point: int, moment: Moment) -> None:
        self.left, self.moment = point, moment
        self.task: asyncio.Task[object]
        self.reached = self.cancelled = self.over = False

    def suspended(self, awaited: Any) -> None:
        """Count a suspension of the call, or of a task it started, which waits for `awaited` now."""
        self.left -= 1
        if self.left or self.over:
            return
        self.reached = True
        loop = asyncio.get_running_loop()
        if self.moment is Moment.AT_ONCE:
            self._cancel()
        elif self.moment is Moment.AFTER_THE_ANSWER and isinstance(awaited, asyncio.Future):
            awaited.add_done_callback(self._cancel)  # before the task that waits adds its own
        else:
            if self.moment is Moment.WITH_THE_ANSWER:
                _hold_until_readable(loop)
            loop.call_soon(self._cancel)

    def _cancel(self, _: object = None) -> None:
        if not self.task.done():
            self.cancelled = True
            self.task.cancel()


_present: ContextVar[_Run | None] = ContextVar("cancelled run", default=None)


async def _awaited(call: Callable[[], Awaitable[object]]) -> object:
    return await call()


class _SteppedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine whose suspensions a run counts."""

    def __init__(self, work: Coroutine[Any, Any, Any], run: _Run) -> None:
        self._work, self._run = work, run

    def send(self, value: Any) -> Any:
        return self._counted(self._work.send(value))

    def throw(self, *error: Any) -> Any:
        return self._counted(self._work.throw(*error))

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()

    def _counted(self, awaited: Any) -> Any:
        self._run.suspended(awaited)
        return awaited


def _hold_until_readable(loop: asyncio.AbstractEventLoop) -> None:
    """Keep the event loop from turning until a socket has something for it: the next turn reads the answer."""
    selector = loop._selector  # type: ignore[attr-defined]
    until = time.monotonic() + ANSWER_SECONDS
    while not selector.select(0) and time.monotonic() < until:
        pass
