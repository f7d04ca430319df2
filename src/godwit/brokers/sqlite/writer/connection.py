"""Connections to the database file: opened with our settings, checked before use, their errors translated."""

from __future__ import annotations

import sqlite3
from importlib.resources import files
from pathlib import Path
from typing import Final

from godwit.core.errors import (
    BrokerBusy,
    BrokerError,
    BrokerUnavailable,
    StorageCorrupt,
    StorageFull,
    StorageTooNew,
)

SCHEMA_VERSION: Final = 1
BUSY_SECONDS: Final = 5.0
_PRIMARY: Final = 0xFF
_SHM_SIZE: Final = 4874  # SQLITE_IOERR_SHMSIZE: the disk has no room for the shared memory file


def open_writer(path: Path, max_pages: int | None = None) -> sqlite3.Connection:
    """Return the connection that changes things, with the schema in place; the caller holds the file lock."""
    check_header(path)
    try:
        connection = _connect(path)
        try:
            _check_version(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")  # what must be on the disk, `log` takes there
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("PRAGMA cache_size = -6000")
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
        connection = _connect(path)
        connection.execute("PRAGMA query_only = 1")
        connection.execute("PRAGMA cache_size = -2000")
    except sqlite3.Error as error:
        raise translated(error, path, "opening the file") from error
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=512
    )


def check_header(path: Path) -> None:
    """Refuse what is there but is no database, without touching it.

    SQLite looks, not we: closing a file of our own would let go of every lock that connections of this process have on
    it, and the next one to close would take the log away from under the others.
    """
    try:
        if path.stat().st_size == 0:
            return
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        try:
            connection.execute("PRAGMA schema_version").fetchone()
        finally:
            connection.close()
    except FileNotFoundError:
        return
    except OSError as error:
        remedy = "Choose another path, or change its permissions."
        raise BrokerUnavailable(f"sqlite:///{path}", error.strerror or str(error), remedy) from error
    except sqlite3.Error as error:
        if (getattr(error, "sqlite_errorcode", 0) or 0) & _PRIMARY == sqlite3.SQLITE_NOTADB:
            raise StorageCorrupt(str(path), "it is not an SQLite database") from error
        # Anything else shows, and is told, when the file is opened for work.


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    if _schema_version(connection) > SCHEMA_VERSION:
        raise StorageTooNew(str(path), _schema_version(connection), SCHEMA_VERSION)


def _schema_version(connection: sqlite3.Connection) -> int:
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'broker_schema'").fetchone()
    row = connection.execute("SELECT version FROM broker_schema").fetchone() if known else None
    return int(row[0]) if row is not None else 0


def _create_schema(connection: sqlite3.Connection) -> None:
    if _schema_version(connection):
        return
    script = files("godwit.brokers.sqlite").joinpath("schema.sql").read_text("utf-8")
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in script.split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO broker_schema VALUES (?)", (SCHEMA_VERSION,))
        connection.execute("INSERT INTO broker_versions VALUES (0)")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def translated(error: sqlite3.Error, path: Path, operation: str) -> BrokerError:
    """Return our error for one of SQLite's."""
    code = getattr(error, "sqlite_errorcode", 0) or 0
    match code & _PRIMARY:
        case sqlite3.SQLITE_FULL:
            return StorageFull(str(path))
        case sqlite3.SQLITE_IOERR if code == _SHM_SIZE:
            return StorageFull(str(path))
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StorageCorrupt(str(path), str(error))
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return BrokerBusy(operation, BUSY_SECONDS)
        case _:
            remedy = "Check that the file and its directory are there, writable and on a healthy disk."
            return BrokerUnavailable(f"sqlite:///{path}", str(error), remedy)
