"""The broker's file: opened with its schema in place, checkpointed by its rules, its troubles as errors of brokers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from godwit.brokers.sqlite.engine import SqliteEngine
from godwit.core.clock import Clock
from godwit.core.errors import (
    BrokerBusy,
    BrokerClosed,
    BrokerUnavailable,
    StorageCorrupt,
    StorageFull,
    StorageTooNew,
)
from godwit.sqlite_writer.connection import BUSY_SECONDS, check_header, connect, prepare_writing
from godwit.sqlite_writer.errors import ErrorTable, FileTrouble
from godwit.sqlite_writer.write_ahead_log import CheckpointRules
from godwit.sqlite_writer.writer_thread import FileOwner

SCHEMA_VERSION: Final = 1
ADDED_TABLES: Final = ("broker_lags", "broker_repeats", "broker_mends")
"""Tables that files of version 1 may lack; older programs go on without them."""
CHECKPOINT_SECONDS: Final = 1.0
WAL_BYTES: Final = 64 << 20


def owner_of(
    path: Path, clock: Clock, *, busy_seconds: float, max_pages: int | None, ready: Callable[[set[str]], None]
) -> FileOwner:
    """Return what the writer must know; `ready` is called with the queues where something became deliverable."""
    return FileOwner(
        name="sqlite",
        open=partial(open_for_writing, max_pages=max_pages),
        runner=lambda connection: SqliteEngine(connection, clock, ready),
        errors=error_table(path),
        busy_seconds=busy_seconds,
        checkpoints=CheckpointRules(every_seconds=CHECKPOINT_SECONDS, cut_bytes=WAL_BYTES),
    )


def error_table(path: Path) -> ErrorTable:
    """Return the errors of brokers for the troubles of this file."""
    url = f"sqlite:///{path}"
    disk = "Check the disk. What was published may be there or not; publishing it again is safe."
    remedy = "Check that the file and its directory are there, writable and on a healthy disk."
    return ErrorTable(
        closed=lambda: BrokerClosed(f"The SQLite broker on {path}"),
        late=BrokerBusy,
        unwritten=lambda text: BrokerUnavailable(url, text, disk),
        troubles={
            FileTrouble.FULL: lambda _operation, _text: StorageFull(str(path)),
            FileTrouble.CORRUPT: lambda _operation, text: StorageCorrupt(str(path), text),
            FileTrouble.BUSY: lambda operation, _text: BrokerBusy(operation, BUSY_SECONDS),
            FileTrouble.OTHER: lambda _operation, text: BrokerUnavailable(url, text, remedy),
        },
    )


def translated(error: sqlite3.Error, path: Path, operation: str) -> Exception:
    """Return a broker's error for one of SQLite's."""
    return error_table(path).translated(error, operation)


def open_for_writing(path: Path, max_pages: int | None = None) -> sqlite3.Connection:
    """Return the connection that changes things, with the schema in place; the caller holds the file lock."""
    check_header(path)
    try:
        connection = connect(path, cached_statements=512, cache_kib=6000)
        try:
            _check_version(connection, path)
            prepare_writing(connection)
            if max_pages is not None:
                connection.execute(f"PRAGMA max_page_count = {int(max_pages)}")
            _create_schema(connection)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise translated(error, path, "opening the file") from error
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Return a connection that cannot change anything."""
    try:
        connection = connect(path, cached_statements=512, cache_kib=2000)
        connection.execute("PRAGMA query_only = 1")
    except sqlite3.Error as error:
        raise translated(error, path, "opening the file") from error
    return connection


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    if _schema_version(connection) > SCHEMA_VERSION:
        raise StorageTooNew(str(path), _schema_version(connection), SCHEMA_VERSION)


def _schema_version(connection: sqlite3.Connection) -> int:
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'broker_schema'").fetchone()
    row = connection.execute("SELECT version FROM broker_schema").fetchone() if known else None
    return int(row[0]) if row is not None else 0


def _create_schema(connection: sqlite3.Connection) -> None:
    new = not _schema_version(connection)
    added = connection.execute("SELECT count(*) FROM sqlite_master WHERE name IN (?, ?, ?)", ADDED_TABLES).fetchone()[0]
    if not new and added == len(ADDED_TABLES):
        return
    script = Path(__file__).parents[1].joinpath("schema.sql").read_text("utf-8")
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in script.split(";\n"):
            if new or "IF NOT EXISTS" in statement:
                connection.execute(statement)
        if new:
            connection.execute("INSERT INTO broker_schema VALUES (?)", (SCHEMA_VERSION,))
            connection.execute("INSERT INTO broker_versions VALUES (0)")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
