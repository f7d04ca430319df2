"""A SQLite file: the writer's thread changes it, a thread of its own reads.

The broker may live in the same file: both queue on the same lock, and its holder may checkpoint.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from godwit.core.errors import (
    GodwitError,
    SchemaOutdated,
    StoreBusy,
    StoreClosed,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from godwit.sqlite_writer.call import Step, WriterCall
from godwit.sqlite_writer.connection import connect, prepare_writing
from godwit.sqlite_writer.errors import VALUE_ERRORS, ErrorTable, FileTrouble
from godwit.sqlite_writer.write_ahead_log import CheckpointRules
from godwit.sqlite_writer.writer_thread import FileOwner, WriterThread
from godwit.store.sql_files import statement
from godwit.store.sqlite.migrate import upgrade

T = TypeVar("T")

PACKAGE: Final = "godwit.store.sqlite"
BUSY_SECONDS: Final = 10.0
CHECKPOINTS: Final = CheckpointRules(every_seconds=5.0, long_seconds=1.0, long_bytes=16 << 20)
CACHE_KIB: Final = 500
"""A quarter of what SQLite takes by itself: the system keeps the file in memory too, and a worker shall stay small."""


def sql(name: str) -> str:
    """Return the statement in `sql/<name>.sql`."""
    return statement(PACKAGE, name)


def error_table(shown: str, path: Path) -> ErrorTable:
    """Return the errors of stores for the troubles of this file."""
    disk = "Check the disk. What was written may be there or not."
    remedy = "Check that the file and its directory are there, writable, readable and on a healthy disk."

    def unavailable(_operation: str, text: str) -> GodwitError:
        return StoreUnavailable(shown, text, remedy)

    return ErrorTable(
        closed=lambda: StoreClosed(shown),
        late=lambda operation, seconds: StoreBusy(operation, f"other writers held {path} for {seconds:g} s"),
        unwritten=lambda text: StoreUnavailable(shown, text, disk),
        troubles={
            FileTrouble.FULL: lambda _operation, _text: StoreFull(shown),
            FileTrouble.REFUSED: StoreRefused,
            FileTrouble.BUSY: StoreBusy,
            FileTrouble.OUTDATED: lambda _operation, text: SchemaOutdated(shown, (text,)),
            FileTrouble.OTHER: unavailable,
        },
    )


class _Steps:
    """Gives the store's steps the connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, step: Step) -> Any:
        return step(self._connection)

    def rolled_back(self) -> None:
        """Keep nothing: the store remembers no rows."""

    def committed(self) -> None:
        """Do nothing: no caller waits for rows."""


class SqliteFile:
    """What the parts of the store share: `write` for a transaction, `read` for a look."""

    def __init__(self, path: Path, *, shown: str, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = path
        self.shown = shown
        self.errors = error_table(shown, path)
        self._busy_seconds = busy_seconds
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="godwit-store-reader")
        self._opening = threading.Lock()
        self._writer: WriterThread | None = None
        self._reader: sqlite3.Connection | None = None
        self._closed = self._is_prepared = False

    def _writing(self) -> WriterThread:
        """Return the writer; its thread begins with the first write."""
        with self._opening:
            if self._writer is None:
                owner = FileOwner(
                    name="store",
                    open=partial(_open, shown=self.shown),
                    runner=_Steps,
                    errors=self.errors,
                    busy_seconds=self._busy_seconds,
                    checkpoints=CHECKPOINTS,
                )
                self._writer = WriterThread(self.path, owner)
            return self._writer

    async def write(self, operation: str, step: Callable[[sqlite3.Connection], T], *, durable: bool = True) -> T:
        """Carry out a step in one immediate transaction; `durable` ones survive a power cut when this returns."""
        if self._closed:
            raise StoreClosed(self.shown)
        future: ThreadFuture[T] = ThreadFuture()
        call = WriterCall(operation, step, future, durable=durable)
        writer = self._writing()
        writer.put(call)
        waiting = asyncio.wrap_future(future)
        try:
            done, _ = await asyncio.wait({waiting}, timeout=self._busy_seconds)
            if not done:
                raise writer.late(call)
        finally:
            if not waiting.done():  # cancelled, or too late: what has not begun is not begun any more
                call.abandoned = True
            waiting.add_done_callback(_seen)
        return waiting.result()

    async def read(self, operation: str, step: Callable[[sqlite3.Connection], T]) -> T:
        """Carry out a step that changes nothing, on one consistent view; short, or the log cannot shrink."""

        def work() -> T:
            if self._reader is None:
                self._writing().do(operation, _nothing)  # makes the file and the schema when they are missing
                self._reader = _connect(self.path)
                self._reader.execute("PRAGMA query_only = 1")
            self._reader.execute("BEGIN")
            try:
                return step(self._reader)
            finally:
                self._reader.execute("COMMIT")

        return await self.look(operation, work)

    async def prepared(self) -> None:
        """Make the file and the schema when they are missing, before they are used."""
        if not self._is_prepared:
            await self.write("opening the file", _nothing)
            self._is_prepared = True

    async def look(self, operation: str, step: Callable[[], T]) -> T:
        """Carry out a step on the readers' thread without opening anything."""
        if self._closed:
            raise StoreClosed(self.shown)
        abandoned = False

        def unless_abandoned() -> T:
            if abandoned:
                raise StoreBusy(operation, "the caller no longer waits")
            return step()

        future = asyncio.get_running_loop().run_in_executor(self._reading, unless_abandoned)
        try:
            done, _ = await asyncio.wait({future}, timeout=self._busy_seconds)
            if not done:
                raise self.errors.late(operation, self._busy_seconds)
        finally:
            abandoned = not future.done()
            future.add_done_callback(_seen)
        try:
            return future.result()
        except (sqlite3.Error, OSError, *VALUE_ERRORS) as error:
            raise self.errors.translated(error, operation) from error

    async def close(self) -> None:
        """Close the file; calls under way are finished first."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._reading.shutdown()
        if self._reader is not None:
            self._reader.close()
        if self._writer is not None:
            self._writer.close()


def _seen(late: asyncio.Future[Any]) -> None:
    """Look at how a call ended whose caller may be gone, so that asyncio does not complain about it."""
    if not late.cancelled():
        late.exception()


def _nothing(_connection: sqlite3.Connection) -> None:
    """Change nothing: a step that only opens the file."""


def _connect(path: Path) -> sqlite3.Connection:
    connection = connect(path, cached_statements=256, cache_kib=CACHE_KIB)
    connection.row_factory = sqlite3.Row
    return connection


def _open(path: Path, *, shown: str) -> sqlite3.Connection:
    connection = _connect(path)
    try:
        prepare_writing(connection)
        connection.execute("PRAGMA foreign_keys = ON")
        upgrade(connection, shown)
    except BaseException:
        connection.close()
        raise
    return connection
