"""The writer as an event loop sees it: queued steps with a deadline, and brief ones that need not change threads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from godwit.sqlite_writer.call import NO_CALLER, Step, WriterCall
from godwit.sqlite_writer.writer_thread import FileOwner, WriterThread

TOGETHER: Final = 8
"""Brief calls in one transaction at most: others wait for it, on this loop and in other processes."""


class SqliteWriter:
    """Carries out the steps of one event loop in the order they are given, several per commit."""

    def __init__(self, path: Path, owner: FileOwner, loop: asyncio.AbstractEventLoop) -> None:
        self.thread = WriterThread(path, owner, self._forget_answered)
        """For callers of other threads."""
        self._loop = loop
        self._busy_seconds = owner.busy_seconds
        self._waiting: deque[WriterCall] = deque()
        self._brief: list[WriterCall] = []
        """Brief calls of this turn of the loop: the first of them to go on carries out all."""
        self._timer: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Open the file, in a thread."""
        try:
            await asyncio.to_thread(self.thread.open)
        except BaseException:
            await self.close()
            raise

    def submit(
        self, name: str, step: Step, *, durable: bool = False, lost: Callable[[Any], None] | None = None
    ) -> asyncio.Future[Any]:
        """Queue a step; the future is done after its commit."""
        future: asyncio.Future[Any] = self._loop.create_future()
        call = WriterCall(name, step, future, durable=durable, lost=lost)
        call.deadline = self._loop.time() + self._busy_seconds
        self.thread.put(call)
        self._waiting.append(call)
        if self._timer is None:
            self._timer = self._loop.call_at(call.deadline, self._give_up)
        return future

    async def carry_out(
        self, name: str, step: Step, *, durable: bool = False, lost: Callable[[Any], None] | None = None
    ) -> Any:
        """Queue a step and return its result; `lost` gets what a cancelled caller does not take any more."""
        future = self.submit(name, step, durable=durable, lost=lost)
        try:
            return await future
        except asyncio.CancelledError:
            # The answer may have come in the same turn of the loop: then no other caller takes it.
            if lost is not None and future.done() and not future.cancelled() and future.exception() is None:
                lost(future.result())
            raise

    def _forget_answered(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0].future.done():
            waiting.popleft()

    async def brief(
        self, name: str, step: Step, *, durable: bool = False, lost: Callable[[Any], None] | None = None
    ) -> Any:
        """Carry out a step that keeps the processor busy anyway: here and now, when no other step runs.

        Two changes of thread cost as much as such a step. Others get their turn of the loop first. A durable one waits
        for the disk too, so it stays on the thread unless the last ones were quick.
        """
        quick = not durable or self.thread.disk_is_quick
        call = WriterCall(name, step, NO_CALLER, durable=durable, lost=lost)
        if quick:
            self._brief.append(call)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._forsake(call)
            raise
        if quick and call in self._brief:
            calls, self._brief = self._brief[:TOGETHER], self._brief[TOGETHER:]
            self.thread.at_once(calls)
        if call.carried_out:
            if call.error is not None:
                raise call.error
            return call.result
        return await self.carry_out(name, step, durable=durable, lost=lost)

    def _forsake(self, call: WriterCall) -> None:
        """Do what is left to do for a call whose caller is gone."""
        if call in self._brief:
            self._brief.remove(call)
        elif call.carried_out and call.error is None and call.lost is not None:
            call.lost(call.result)

    def _give_up(self) -> None:
        """Answer calls past their deadline; one timer serves all, since deadlines come in order."""
        self._timer = None
        now = self._loop.time()
        waiting = self._waiting
        while waiting and (waiting[0].future.done() or waiting[0].deadline <= now):
            call = waiting.popleft()
            if not call.future.done():
                call.abandoned = True
                call.future.set_exception(self.thread.late(call))
        if waiting:
            self._timer = self._loop.call_at(waiting[0].deadline, self._give_up)

    async def close(self) -> None:
        """Finish what is queued, then close the file."""
        try:
            await asyncio.to_thread(self.thread.close)
        finally:
            if self._timer is not None:
                self._timer.cancel()
