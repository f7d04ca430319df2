"""The writer's thread: what waits in its queue goes into one transaction, under the file lock."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future as ThreadFuture
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from godwit.core import background
from godwit.sqlite_writer.call import Step, StepRunner, WriterCall
from godwit.sqlite_writer.errors import ErrorTable
from godwit.sqlite_writer.file_lock import FileLock
from godwit.sqlite_writer.transactions import Transactions
from godwit.sqlite_writer.write_ahead_log import CheckpointRules, WriteAheadLog

GROUP_COMMIT: Final = 256
"""Calls in one transaction at most: the last one waits for all before it."""
SOON_SECONDS: Final = 0.0015
"""How long a brief call waits for another process's step before it leaves the waiting to the thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOwner:
    """What a writer must know of the file's owner."""

    name: str
    """The first part of the names of fault points."""
    open: Callable[[Path], sqlite3.Connection]
    """Opens the file, with its schema in place; called with the file lock held."""
    runner: Callable[[sqlite3.Connection], StepRunner]
    errors: ErrorTable
    busy_seconds: float
    checkpoints: CheckpointRules
    log: type[WriteAheadLog] = WriteAheadLog


class WriterThread:
    """Carries out calls in the order they come, for callers of any thread; opens the file for the first of them."""

    def __init__(self, path: Path, owner: FileOwner, answered: Callable[[], None] = lambda: None) -> None:
        self._path = path
        self._owner = owner
        self._answered = answered
        """Called in the event loop that has just got answers."""
        self._lock: FileLock | None = None
        self._connection: sqlite3.Connection | None = None
        self._runner: StepRunner
        self._log: WriteAheadLog
        self._transactions: Transactions
        self._calls: queue.SimpleQueue[WriterCall | None] = queue.SimpleQueue()
        self._turn = threading.Lock()
        """Held by the user of the connection: the thread, or an event loop for brief calls."""
        self.closed = False
        self._thread = threading.Thread(target=self._run, name=f"godwit-{owner.name}-writer", daemon=True)
        self._thread.start()

    def open(self) -> None:
        """Open the file now; otherwise the first call does. May be repeated after an error."""
        with self._turn, self._locked():
            pass

    @property
    def disk_is_quick(self) -> bool:
        """Whether the last few answers of the disk came at once."""
        return self._log.disk_is_quick

    # Ways in

    def put(self, call: WriterCall) -> None:
        """Queue a call; its future is done after its commit, in the future's own event loop or in this thread."""
        if self.closed:
            raise self._owner.errors.closed()
        self._calls.put(call)

    def do(self, name: str, step: Step) -> Any:
        """Carry out a step for a caller in any other thread, and wait for it."""
        future: ThreadFuture[Any] = ThreadFuture()
        call = WriterCall(name, step, future)
        self.put(call)
        try:
            return future.result(self._owner.busy_seconds)
        except TimeoutError:
            call.abandoned = True
            raise self.late(call) from None

    def late(self, call: WriterCall) -> Exception:
        """Return the error for a call that other writers kept waiting for too long."""
        return self._owner.errors.late(call.name, self._owner.busy_seconds)

    def at_once(self, calls: list[WriterCall]) -> None:
        """Carry out calls on the caller's thread in one transaction, unless others are at it or the log needs care."""
        if self.closed or self._connection is None or self._lock is None or not self._turn.acquire(blocking=False):
            return
        try:
            if self._log.needs_care or not self._calls.empty() or not self._lock.acquire_within(SOON_SECONDS):
                return
            try:
                self._transactions.carry_out(calls)
            finally:
                self._lock.release()
            self._runner.committed()
        finally:
            self._turn.release()
        self._transactions.write_through(calls)
        for call in calls:
            call.carried_out = True

    # Closing

    def close(self) -> None:
        """Finish what is queued, then close the file; waits for both."""
        if self.closed:
            return
        self.closed = True
        self._calls.put(None)
        self._thread.join(self._owner.busy_seconds)
        # Else it waits for a lock that does not come free: leave the file to the kernel.
        if not self._thread.is_alive() and self._lock is not None:
            with self._lock:  # closing the last connection checkpoints
                if self._connection is not None:
                    self._connection.close()
            self._lock.close()

    # On the thread

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the file lock, with the file open."""
        if self._lock is None:
            self._lock = FileLock(Path(f"{self._path}.lock"))
        with self._lock:
            if self._connection is None:
                self._open()
            yield

    def _open(self) -> None:
        owner = self._owner
        connection = owner.open(self._path)
        self._runner = owner.runner(connection)
        self._log = owner.log(self._path, connection, owner.checkpoints, owner=owner.name)
        self._transactions = Transactions(
            connection, self._runner, self._log, owner.errors, busy_seconds=owner.busy_seconds, owner=owner.name
        )
        self._connection = connection

    def _run(self) -> None:
        last = False
        while not last:
            try:
                call = self._calls.get(timeout=self._owner.log.look_seconds)
            except queue.Empty:
                self._move_log()
                continue
            if call is None:
                return
            calls = [call]
            last = self._take_turn(calls)
            try:
                if self._connection is not None:
                    self._transactions.write_through(calls)  # others go on meanwhile
            except BaseException as error:  # noqa: BLE001 - every caller gets an answer, also the next ones
                background.failed("sqlite writer", error)
                for one in calls:
                    one.error = one.error or error
            self._answer(calls)
            self._move_log()

    def _take_turn(self, calls: list[WriterCall]) -> bool:
        """Carry out what waits in one transaction; say whether the queue ends here."""
        last = False
        try:
            with self._turn:
                with self._locked():
                    last = self._take_more(calls)
                    self._log.make_room()
                    self._transactions.carry_out(calls)
                self._runner.committed()
        except BaseException as error:  # noqa: BLE001 (every caller must get an answer)
            for call in calls:
                if call.error is None:
                    ours = self._owner.errors.translated(error, call.name) if isinstance(error, Exception) else error
                    ours.__cause__ = error if ours is not error else None
                    call.error = ours
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

    def _move_log(self) -> None:
        """Move the log into the file when it is time; of several processes the first one does it.

        Its way to the disk comes first and without the lock, so that others wait only for the rest.
        """
        if self._connection is None or not self._log.is_due():
            return
        try:
            self._log.write_through()
            with self._turn, self._locked():
                if self._log.is_due():
                    self._log.move()
        except (OSError, sqlite3.Error):
            return  # what is in the log is safe there; calls show what is wrong with the disk

    def _answer(self, calls: list[WriterCall]) -> None:
        """Tell each caller how its call ended, all those of one event loop in one of its turns."""
        by_loop: dict[asyncio.AbstractEventLoop, list[WriterCall]] = {}
        for call in calls:
            if isinstance(call.future, asyncio.Future):
                by_loop.setdefault(call.future.get_loop(), []).append(call)
            else:
                self._resolve([call])
        for loop, its in by_loop.items():
            with suppress(RuntimeError):  # the loop is closed: no caller waits
                loop.call_soon_threadsafe(self._resolve_in_loop, its)

    def _resolve_in_loop(self, calls: list[WriterCall]) -> None:
        self._resolve(calls)
        self._answered()

    def _resolve(self, calls: list[WriterCall]) -> None:
        for call in calls:
            future = call.future
            if future.done():
                if call.lost is not None and call.error is None and not self.closed:
                    call.lost(call.result)
            elif call.error is not None:
                future.set_exception(call.error)
            else:
                future.set_result(call.result)
