"""One SQLite file: a thread that writes in short transactions under the file lock, a thread that reads.

The broker may live in the same file. Both queue on the same lock, and whoever holds it may checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from godwit.core.errors import StoreBusy, StoreClosed
from godwit.filelock import FileLock
from godwit.store.sql_files import statement
from godwit.store.sqlite.errors import VALUE_ERRORS, translated
from godwit.store.sqlite.migrate import upgrade

T = TypeVar("T")

PACKAGE: Final = "godwit.store.sqlite"
BUSY_SECONDS: Final = 10.0
CHECKPOINT_SECONDS: Final = 5.0
LARGE_LOG_SECONDS: Final = 1.0
"""How often, at most, a log above `LARGE_LOG_BYTES` is moved into the file. A broker in the same file does so too."""
LARGE_LOG_BYTES: Final = 16 << 20
CACHE_KIB: Final = 500
"""A quarter of what SQLite takes by itself: the system keeps the file in memory too, and a worker shall stay small."""


def sql(name: str) -> str:
    """Return the statement in `sql/<name>.sql`."""
    return statement(PACKAGE, name)


class SqliteFile:
    """What the parts of the store share: `write` for a transaction, `read` for a look."""

    def __init__(self, path: Path, *, shown: str, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = path
        self.shown = shown
        self._busy_seconds = busy_seconds
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="godwit-store-writer")
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="godwit-store-reader")
        self._lock: FileLock | None = None
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._synchronous = ""
        self._checkpointed = 0.0
        self._closed = False

    async def write(self, operation: str, step: Callable[[sqlite3.Connection], T], *, durable: bool = True) -> T:
        """Carry out a step in one immediate transaction; `durable` ones survive a power cut when this returns."""

        def work() -> T:
            with self._locked() as connection:
                self._set_synchronous(connection, "FULL" if durable else "NORMAL")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    result = step(connection)
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
                self._checkpoint(connection)
                return result

        return await self._on(self._writing, operation, work)

    async def read(self, operation: str, step: Callable[[sqlite3.Connection], T]) -> T:
        """Carry out a step that changes nothing, on one consistent view; short, or the log cannot shrink."""

        def work() -> T:
            if self._reader is None:
                with self._locked():  # makes the file and the schema when they are missing
                    pass
                self._reader = _connect(self.path)
                self._reader.execute("PRAGMA query_only = 1")
            self._reader.execute("BEGIN")
            try:
                return step(self._reader)
            finally:
                self._reader.execute("COMMIT")

        return await self._on(self._reading, operation, work)

    async def prepared(self) -> None:
        """Make the file and the schema when they are missing, before somebody else uses them."""
        if self._writer is None:
            await self.write("opening the file", lambda _connection: None)

    async def look(self, operation: str, step: Callable[[], T]) -> T:
        """Carry out a step on the readers' thread without opening anything."""
        return await self._on(self._reading, operation, step)

    async def _on(self, pool: ThreadPoolExecutor, operation: str, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreClosed(self.shown)
        abandoned = False

        def unless_abandoned() -> T:
            if abandoned:
                raise StoreBusy(operation, "the caller no longer waits")
            return work()

        future = asyncio.get_running_loop().run_in_executor(pool, unless_abandoned)
        done, _ = await asyncio.wait({future}, timeout=self._busy_seconds)
        if not done:
            abandoned = True
            future.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise StoreBusy(operation, f"other writers held {self.path} for {self._busy_seconds:g} s")
        try:
            return future.result()
        except (sqlite3.Error, OSError, *VALUE_ERRORS) as error:
            raise translated(error, self.shown, operation) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[sqlite3.Connection]:
        """Give the writer's connection to whoever holds the file lock, with the schema in place."""
        if self._lock is None:
            self._lock = FileLock(Path(f"{self.path}.lock"))
        with self._lock:
            if self._writer is None:
                self._writer = self._open()
            yield self._writer

    def _open(self) -> sqlite3.Connection:
        connection = _connect(self.path)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA temp_store = MEMORY")
            upgrade(connection, self.shown)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_synchronous(self, connection: sqlite3.Connection, level: str) -> None:
        if level != self._synchronous:
            connection.execute(f"PRAGMA synchronous = {level}")
            self._synchronous = level

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Move the log into the file, while no other writer can be at work."""
        now = time.monotonic()
        since = now - self._checkpointed
        if since >= CHECKPOINT_SECONDS or (since >= LARGE_LOG_SECONDS and self._log_is_large()):
            self._checkpointed = now
            with contextlib.suppress(sqlite3.Error):  # what is in the log is safe there
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _log_is_large(self) -> bool:
        try:
            return os.stat(f"{self.path}-wal").st_size > LARGE_LOG_BYTES  # noqa: PTH116
        except OSError:
            return False

    async def close(self) -> None:
        """Close the file; calls under way are finished first."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._reading.shutdown()
        self._writing.shutdown()
        if self._reader is not None:
            self._reader.close()
        if self._lock is not None:
            with self._lock:  # closing the last connection checkpoints
                if self._writer is not None:
                    self._writer.close()
            self._lock.close()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=5.0, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.row_factory = sqlite3.Row
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection
