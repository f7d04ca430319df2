"""Connections to a database file: opened with our settings, checked before use."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from godwit.core.errors import BrokerUnavailable, StorageCorrupt
from godwit.sqlite_writer.errors import FileTrouble, trouble_of

BUSY_SECONDS: Final = 5.0
"""How long a statement waits for a stranger who holds the file: our own writers wait for the file lock instead."""
SHORT_BUSY_SECONDS: Final = 0.05


def connect(path: Path, *, cached_statements: int, cache_kib: int) -> sqlite3.Connection:
    """Return a connection that begins its transactions itself and may be used by any thread."""
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=cached_statements
    )
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    return connection


def prepare_writing(connection: sqlite3.Connection) -> None:
    """Set what the writer relies on: `WriteAheadLog` takes to the disk what must be there, and moves the log."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA temp_store = MEMORY")


@contextmanager
def short_patience(connection: sqlite3.Connection) -> Iterator[None]:
    """Wait for a stranger only briefly: he must not stop the work."""
    connection.execute(f"PRAGMA busy_timeout = {SHORT_BUSY_SECONDS * 1000:.0f}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")


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
        if trouble_of(error) is FileTrouble.CORRUPT and "not a database" in str(error):
            raise StorageCorrupt(str(path), "it is not an SQLite database") from error
        # Anything else shows, and raises, when the file is opened for work.
