"""The writer: whatever waits in its thread's queue goes into one transaction; brief calls need not change threads."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from pathlib import Path
from typing import Any, Final

from godwit.brokers.sqlite.engine import SqliteEngine
from godwit.brokers.sqlite.writer.calls import NOBODY, Step, WriterCall
from godwit.brokers.sqlite.writer.connection import open_writer
from godwit.brokers.sqlite.writer.transactions import Transactions
from godwit.brokers.sqlite.writer.write_ahead_log import WriteAheadLog
from godwit.core.clock import Clock
from godwit.core.errors import BrokerBusy, BrokerClosed
from godwit.filelock import FileLock

GROUP_COMMIT: Final = 256
"""Calls in one transaction at most: the last one waits for all before it."""
TOGETHER: Final = 8
"""Brief calls in one transaction at most: others wait for it, on this loop and in other processes."""
SOON_SECONDS: Final = 0.0015
"""How long a brief call waits for another process's step before it leaves the waiting to the thread."""


class SqliteWriter:
    """Carries out steps in the order they are given, several per commit."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        busy_seconds: float,
        max_pages: int | None,
        committed: Callable[[set[str]], None],
    ) -> None:
        self._path = path
        self._loop = loop
        self._busy_seconds = busy_seconds
        self._committed = committed
        self._lock = FileLock(Path(f"{path}.lock"))
        try:
            with self._lock:
                self._connection = open_writer(path, max_pages)
        except BaseException:
            self._lock.close()
            raise
        self._engine = SqliteEngine(self._connection, clock)
        self._log = WriteAheadLog(path, self._connection)
        self._transactions = Transactions(path, self._connection, self._engine, self._log, busy_seconds=busy_seconds)
        self._calls: queue.SimpleQueue[WriterCall | None] = queue.SimpleQueue()
        self._waiting: deque[WriterCall] = deque()
        self._brief: list[WriterCall] = []
        """Brief calls of this turn of the loop: the first of them to go on carries out all."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._turn = threading.Lock()
        """Held by whoever uses the connection: the thread, or the event loop for a brief call."""
        self._thread = threading.Thread(target=self._run, name="godwit-sqlite-writer", daemon=True)
        self._thread.start()

    # On the event loop

    def submit(
        self, name: str, step: Step, *, durable: bool = False, lost: Callable[[Any], None] | None = None
    ) -> asyncio.Future[Any]:
        """Queue a step; the future is done after its commit."""
        if self._closed:
            raise BrokerClosed(f"The SQLite broker on {self._path}")
        future: asyncio.Future[Any] = self._loop.create_future()
        call = WriterCall(name, step, future, durable=durable, lost=lost)
        call.deadline = self._loop.time() + self._busy_seconds
        self._waiting.append(call)
        if self._timer is None:
            self._timer = self._loop.call_at(call.deadline, self._give_up)
        self._calls.put(call)
        return future

    async def brief(
        self, name: str, step: Step, *, durable: bool = False, lost: Callable[[Any], None] | None = None
    ) -> Any:
        """Carry out a step that keeps the processor busy anyway: here and now, when nobody else is at it.

        Two changes of thread cost as much as such a step. Others get their turn of the loop first. A durable one waits
        for the disk too, so it stays on the thread unless the last ones were quick.
        """
        quick = not durable or self._log.disk_is_quick
        call = WriterCall(name, step, NOBODY, durable=durable, lost=lost)
        if quick:
            self._brief.append(call)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._forsake(call)
            raise
        if quick and call in self._brief:
            calls, self._brief = self._brief[:TOGETHER], self._brief[TOGETHER:]
            self._at_once(calls)
        if call.carried_out:
            if call.error is not None:
                raise call.error
            return call.result
        return await self.submit(name, step, durable=durable, lost=lost)

    def _forsake(self, call: WriterCall) -> None:
        """Do what is left to do for a call nobody waits for any more."""
        if call in self._brief:
            self._brief.remove(call)
        elif call.carried_out and call.error is None and call.lost is not None:
            call.lost(call.result)

    def _at_once(self, calls: list[WriterCall]) -> None:
        """Carry out calls on this thread in one transaction, unless somebody else is at it or the log needs care."""
        if self._closed or not self._turn.acquire(blocking=False):
            return
        try:
            if self._log.needs_care or not self._calls.empty() or not self._lock.acquire_within(SOON_SECONDS):
                return
            try:
                self._transactions.carry_out(calls)
            finally:
                self._lock.release()
            self._tell_ready()
        finally:
            self._turn.release()
        self._transactions.write_through(calls)
        for call in calls:
            call.carried_out = True

    def _tell_ready(self) -> None:
        ready, self._engine.ready = self._engine.ready, set()
        self._committed(ready)

    def _give_up(self) -> None:
        """Answer calls past their deadline; one timer serves all, since deadlines come in order."""
        self._timer = None
        now = self._loop.time()
        waiting = self._waiting
        while waiting and (waiting[0].future.done() or waiting[0].deadline <= now):
            call = waiting.popleft()
            if not call.future.done():
                call.abandoned = True
                call.future.set_exception(BrokerBusy(call.name, self._busy_seconds))
        if waiting:
            self._timer = self._loop.call_at(waiting[0].deadline, self._give_up)

    def _answer_waiting(self, calls: list[WriterCall]) -> None:
        self._answer([call for call in calls if isinstance(call.future, asyncio.Future)])
        waiting = self._waiting
        while waiting and waiting[0].future.done():
            waiting.popleft()

    def _answer(self, calls: list[WriterCall]) -> None:
        for call in calls:
            future = call.future
            if future.done():
                if call.lost is not None and call.error is None and not self._closed:
                    call.lost(call.result)
            elif call.error is not None:
                future.set_exception(call.error)
            else:
                future.set_result(call.result)

    def do(self, name: str, step: Step) -> Any:
        """Carry out a step for a caller in any other thread."""
        if self._closed:
            raise BrokerClosed(f"The SQLite broker on {self._path}")
        future: ThreadFuture[Any] = ThreadFuture()
        call = WriterCall(name, step, future, durable=False, lost=None)
        self._calls.put(call)
        try:
            return future.result(self._busy_seconds)
        except TimeoutError:
            call.abandoned = True
            raise BrokerBusy(name, self._busy_seconds) from None

    async def close(self) -> None:
        """Finish what is queued, then close the file."""
        if self._closed:
            return
        self._closed = True
        self._calls.put(None)
        await asyncio.to_thread(self._thread.join, self._busy_seconds)
        if self._timer is not None:
            self._timer.cancel()
        if (
            not self._thread.is_alive()
        ):  # else it waits for a lock that does not come free: leave the file to the kernel
            await asyncio.to_thread(self._close_file)

    def _close_file(self) -> None:
        with self._lock:  # closing the last connection checkpoints
            self._connection.close()
        self._lock.close()

    # On the thread

    def _run(self) -> None:
        last = False
        while not last:
            call = self._calls.get()
            if call is None:
                return
            calls = [call]
            with self._turn:
                last = self._take_turn(calls)
                self._tell_ready()
            self._transactions.write_through(calls)  # others go on meanwhile
            self._answer([call for call in calls if isinstance(call.future, ThreadFuture)])
            try:
                self._loop.call_soon_threadsafe(self._answer_waiting, calls)
            except RuntimeError:  # the loop is closed: nobody waits
                return

    def _take_turn(self, calls: list[WriterCall]) -> bool:
        """Carry out what waits in one transaction; say whether it ends here."""
        last = False
        try:
            self._lock.acquire()
            try:
                last = self._take_more(calls)
                self._log.make_room()
                self._transactions.carry_out(calls)
                self._log.checkpoint()
            finally:
                self._lock.release()
        except BaseException as error:  # noqa: BLE001 (every caller must get an answer)
            for one in calls:
                if one.error is None:
                    one.error = error
        return last

    def _take_more(self, calls: list[WriterCall]) -> bool:
        """Add what waits in the queue; say whether it ends here."""
        try:
            while len(calls) < GROUP_COMMIT:
                call = self._calls.get_nowait()
                if call is None:
                    return True
                calls.append(call)
        except queue.Empty:
            pass
        return False
