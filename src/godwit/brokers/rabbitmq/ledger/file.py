"""The ledger's file: steps of all callers, committed together, by the writer that every SQLite file of ours has.

A commit does not wait for the disk unless a step asks for it (`log` says why).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeVar

from godwit.brokers.rabbitmq.ledger.log import LedgerLog
from godwit.brokers.rabbitmq.ledger.transaction import LedgerTransaction
from godwit.core.clock import Clock
from godwit.core.errors import BrokerBusy, BrokerClosed, BrokerUnavailable, StorageCorrupt, StorageFull, StorageTooNew
from godwit.core.logs import get_logger
from godwit.sqlite_writer.call import NO_CALLER, WriterCall
from godwit.sqlite_writer.connection import BUSY_SECONDS, connect, prepare_writing
from godwit.sqlite_writer.errors import ErrorTable, FileTrouble
from godwit.sqlite_writer.write_ahead_log import CheckpointRules
from godwit.sqlite_writer.writer import SqliteWriter
from godwit.sqlite_writer.writer_thread import FileOwner

VERSION: Final = 1
APPLICATION_ID: Final = 0x474D5152
WAIT_SECONDS: Final = 30.0
_PAGE_BYTES: Final = 1024
"""A step touches many pages for a few bytes each, and the log holds whole pages: 27 KiB a message, 89 with 4096."""

T = TypeVar("T")
Step = Callable[[LedgerTransaction], T]
log = get_logger(__name__)


class _Steps:
    """Gives each step a transaction of the ledger, and writes what it changed there."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock, app_version: str | None) -> None:
        self._connection = connection
        self._clock = clock
        self._app_version = app_version

    def run(self, step: Step[T]) -> T:
        tx = LedgerTransaction(self._connection, self._clock.now_ms(), self._app_version)
        result = step(tx)
        tx.flush()
        return result

    def rolled_back(self) -> None:
        """Keep nothing: what was read ends with its step."""

    def committed(self) -> None:
        """Do nothing: RabbitMQ itself delivers."""


class LedgerFile:
    """A SQLite file, opened by any number of processes of this machine."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self.app_version: str | None = None
        """Of the application; it counts from the opening on."""
        self._writer: SqliteWriter | None = None

    async def open(self) -> None:
        """Open the file, or make it."""
        owner = FileOwner(
            name="ledger",
            open=self._open,
            runner=lambda connection: _Steps(connection, self._clock, self.app_version),
            errors=error_table(self.path),
            busy_seconds=WAIT_SECONDS,
            checkpoints=CheckpointRules(cut_bytes=0),
            log=LedgerLog,
        )
        writer = SqliteWriter(self.path, owner, asyncio.get_running_loop())
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            await writer.open()
        except OSError as error:
            await writer.close()
            remedy = "Its folder must exist and be writable; choose another with ?ledger=PATH in the URL."
            raise BrokerUnavailable(str(self.path), error.strerror or str(error), remedy) from error
        self._writer = writer

    async def close(self) -> None:
        """Finish what is under way."""
        if self._writer is not None:
            await self._writer.close()

    async def step(self, step: Step[T], *, durable: bool = False) -> T:
        """Carry out a step in a transaction of its own; `durable` waits for the disk."""
        writer = self._opened()
        if not durable:
            # It costs less than two changes of thread, and does not wait for the disk.
            call = WriterCall("step", step, NO_CALLER)
            writer.thread.at_once([call])
            if call.carried_out:
                if call.error is not None:
                    raise call.error
                result: T = call.result
                return result
        # A caller that gives up does not undo what was begun.
        return await asyncio.shield(writer.submit("step", step, durable=durable))

    def post(self, step: Step[Any]) -> None:
        """Carry out a step some time soon, from any thread."""
        future: ThreadFuture[Any] = ThreadFuture()
        future.add_done_callback(_log_failure)
        self._opened().thread.put(WriterCall("note", step, future))

    def _opened(self) -> SqliteWriter:
        if self._writer is None:
            raise BrokerClosed(f"The ledger in {self.path}")
        return self._writer

    def _open(self, path: Path) -> sqlite3.Connection:
        try:
            connection = connect(path, cached_statements=128, cache_kib=2000)
            try:
                _prepare(connection, path)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise error_table(path).translated(error, "opening the ledger") from error
        return connection


def _log_failure(future: ThreadFuture[Any]) -> None:
    error = future.exception()
    if error is not None:
        log.warning("a note in the ledger was lost", error=str(error))


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    if owner not in (0, APPLICATION_ID) or (owner == 0 and connection.execute("PRAGMA page_count").fetchone()[0]):
        raise StorageCorrupt(str(path), "it is another program's database")
    if found > VERSION:
        raise StorageTooNew(str(path), found, VERSION)
    connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    prepare_writing(connection)
    connection.executescript((files(__package__) / "schema.sql").read_text())
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def error_table(path: Path) -> ErrorTable:
    """Return the errors of brokers for the troubles of a ledger."""
    disk = "Check the disk of the ledger's folder, then repeat the call; what was done is recognised."
    remedy = "Check the ledger's folder; the messages are in RabbitMQ and wait there."
    return ErrorTable(
        closed=lambda: BrokerClosed(f"The ledger in {path}"),
        late=BrokerBusy,
        unwritten=lambda text: BrokerUnavailable(str(path), text, disk),
        troubles={
            FileTrouble.FULL: lambda _operation, _text: StorageFull(str(path)),
            FileTrouble.CORRUPT: lambda _operation, text: StorageCorrupt(str(path), text),
            FileTrouble.BUSY: lambda operation, _text: BrokerBusy(operation, BUSY_SECONDS),
            FileTrouble.OTHER: lambda _operation, text: BrokerUnavailable(str(path), text, remedy),
        },
    )
