"""The ledger's file and the thread that writes it: steps of all callers, committed together.

A commit does not wait for the disk unless a step asks for it (`log` says why). Processes queue on a lock in the kernel,
which lets go when its holder dies.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeVar

from godwit.brokers.rabbitmq.ledger.log import BUSY_SECONDS, LedgerLog
from godwit.brokers.rabbitmq.ledger.transaction import LedgerTransaction
from godwit.core.clock import Clock
from godwit.core.errors import BrokerError, BrokerUnavailable, StorageCorrupt, StorageFull, StorageTooNew
from godwit.core.logs import get_logger

VERSION: Final = 1
APPLICATION_ID: Final = 0x474D5152
_TOGETHER: Final = 64
_LOOK_SECONDS: Final = 1.0
_PAGE_BYTES: Final = 1024
"""A step touches many pages for a few bytes each, and the log holds whole pages: 27 KiB a message, 89 with 4096."""

T = TypeVar("T")
Step = Callable[[LedgerTransaction], T]
log = get_logger(__name__)


class _Job:
    """One step, and who waits for it."""

    __slots__ = ("durable", "failure", "future", "loop", "result", "step")

    def __init__(
        self,
        step: Step[Any],
        loop: asyncio.AbstractEventLoop | None = None,
        future: asyncio.Future[Any] | None = None,
        *,
        durable: bool = False,
    ) -> None:
        self.step, self.durable, self.loop, self.future = step, durable, loop, future
        self.result: Any = None
        self.failure: BaseException | None = None


class LedgerFile:
    """One SQLite file, opened by any number of processes of this machine."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._busy = threading.Lock()
        """Whoever has it uses the connection: the thread, or a caller who found nobody before him."""
        self._counting = threading.Lock()
        self._waiting = 0
        self._connection: sqlite3.Connection
        self._log: LedgerLog
        self._lock = -1

    async def open(self) -> None:
        """Open the file, or make it."""
        await asyncio.get_running_loop().run_in_executor(None, self._open)
        self._thread = threading.Thread(target=self._run, name="godwit ledger", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Finish what is under way."""
        if self._thread is not None:
            self._jobs.put(None)
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
            self._thread = None
            self._connection.close()
            os.close(self._lock)

    async def step(self, step: Step[T], *, durable: bool = False) -> T:
        """Carry out a step in a transaction of its own; `durable` waits for the disk."""
        if not durable and not self._waiting and self._busy.acquire(blocking=False):
            job = self._at_once(step)
            if job is not None:
                if job.failure is not None:
                    raise job.failure
                result: T = job.result
                return result
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._put(_Job(step, loop, future, durable=durable))
        return await asyncio.shield(future)  # a caller that gives up does not undo what was begun

    def _at_once(self, step: Step[T]) -> _Job | None:
        """Carry out a step on the caller's own thread; None when another process is writing just now.

        It costs less than two changes of thread, and does not wait for the disk.
        """
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            job = _Job(step)
            self._commit([job])
            return job
        finally:
            self._busy.release()

    def _put(self, job: _Job) -> None:
        with self._counting:
            self._waiting += 1
        self._jobs.put(job)

    def post(self, step: Step[Any]) -> None:
        """Carry out a step some time soon, from any thread."""
        self._put(_Job(step))

    # The thread

    def _open(self) -> None:
        path = self.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                self._connection = self._prepared(
                    sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
                )
                self._log = LedgerLog(path, self._connection)
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)
        except OSError as error:
            remedy = "Its folder must exist and be writable; choose another with ?ledger=PATH in the URL."
            raise BrokerUnavailable(str(path), error.strerror or str(error), remedy) from error
        except sqlite3.Error as error:
            raise translated(error, path) from error

    def _prepared(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        owner = connection.execute("PRAGMA application_id").fetchone()[0]
        if owner not in (0, APPLICATION_ID) or (owner == 0 and connection.execute("PRAGMA page_count").fetchone()[0]):
            raise StorageCorrupt(str(self.path), "it is another program's database")
        if found > VERSION:
            raise StorageTooNew(str(self.path), found, VERSION)
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.executescript((files(__package__) / "schema.sql").read_text())
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        return connection

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                self._look_after_log()
                continue
            if job is None:
                return
            jobs, last = [job], False
            while len(jobs) < _TOGETHER and not self._jobs.empty():
                following = self._jobs.get()
                if following is None:
                    last = True
                    break
                jobs.append(following)
            self._together(jobs)
            if last:
                return
            self._look_after_log()

    def _look_after_log(self) -> None:
        """Move a long log into the file; of several processes the first one does it."""
        if not self._log.is_due():
            return
        try:
            self._log.write_through()
        except OSError as error:
            log.warning("the ledger's log could not be synced", error=str(error))
            return
        with self._busy:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                if self._log.is_due():
                    self._log.move()
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _together(self, jobs: list[_Job]) -> None:
        with self._busy:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._commit(jobs)
        with self._counting:
            self._waiting -= len(jobs)
        self._make_durable([job for job in jobs if job.durable and job.failure is None])
        self._tell(jobs)

    def _make_durable(self, jobs: list[_Job]) -> None:
        """Wait for the disk behind the lock, while others go on."""
        if not jobs:
            return
        try:
            self._log.write_through()
        except OSError as error:
            for job in jobs:
                job.failure = unwritten(error, self.path)

    def _commit(self, jobs: list[_Job]) -> None:
        """Carry out steps in one transaction; the caller has both locks, and loses that of the file here."""
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                self._one(connection, job, alone=len(jobs) == 1)
            # The only step of a transaction may have ended it.
            if connection.in_transaction:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            failure = translated(error, self.path)
            for job in jobs:
                job.failure = job.failure or failure
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _one(self, connection: sqlite3.Connection, job: _Job, *, alone: bool) -> None:
        """Carry out one step; one that fails is undone without those beside it."""
        if not alone:
            connection.execute("SAVEPOINT step")
        tx = LedgerTransaction(connection, self._clock.now_ms())
        try:
            job.result = job.step(tx)
            tx.flush()
        except sqlite3.Error:
            raise
        except BaseException as error:  # noqa: BLE001 (it belongs to the caller in the other thread)
            job.failure = error
            connection.execute("ROLLBACK" if alone else "ROLLBACK TO step")
        if not alone:
            connection.execute("RELEASE step")

    def _tell(self, jobs: list[_Job]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        for job in jobs:
            if job.loop is not None:
                by_loop.setdefault(job.loop, []).append(job)
            elif job.failure is not None:
                log.warning("a note in the ledger was lost", error=str(job.failure))
        for loop, told in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, told)


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        future = job.future
        if future is None or future.done():
            continue
        if job.failure is None:
            future.set_result(job.result)
        else:
            future.set_exception(job.failure)
            future.exception()


def translated(error: sqlite3.Error, path: Path) -> BrokerError:
    """Return an SQLite error as one of ours."""
    text = str(error)
    if "full" in text:
        return StorageFull(str(path))
    if isinstance(error, sqlite3.DatabaseError) and ("malformed" in text or "not a database" in text):
        return StorageCorrupt(str(path), text)
    remedy = "Check the ledger's folder; the messages are in RabbitMQ and wait there."
    return BrokerUnavailable(str(path), text, remedy)


def unwritten(error: OSError, path: Path) -> BrokerError:
    """Return what a disk that did not take the log says, as one of our errors."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(str(path))
    remedy = "Check the disk of the ledger's folder, then repeat the call; what was done is recognised."
    return BrokerUnavailable(str(path), error.strerror or str(error), remedy)
