"""Working inside an application's own SQLite transaction."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from godwit.core.errors import InvalidSetting
from godwit.store.sqlite.file import SqliteFile
from godwit.store.sqlite.translating import translated


@contextlib.contextmanager
def check_connection(connection: Any, file: SqliteFile, operation: str) -> Iterator[None]:
    """Refuse what is no connection to the store's own file; SQLite's errors become ours.

    A transaction is begun when none is open: the application commits it, as it does after its own statements.
    """
    if not isinstance(connection, sqlite3.Connection):
        raise InvalidSetting("connection", type(connection).__name__, f"a sqlite3 connection to {file.path}")
    try:
        places = [Path(row[2]) for row in connection.execute("PRAGMA database_list") if row[1] == "main"]
        if not any(place.exists() and place.samefile(file.path) for place in places):
            raise InvalidSetting("connection", str(places[0]), f"a connection to {file.path}")
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        yield
    except sqlite3.Error as error:
        raise translated(error, file.shown, operation) from error
