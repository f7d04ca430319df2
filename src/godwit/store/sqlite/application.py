"""Working inside an application's own SQLite transaction."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from godwit.core.errors import InvalidSetting, SchemaOutdated
from godwit.sqlite_writer.errors import VALUE_ERRORS
from godwit.store.sqlite.file import SqliteFile


async def prepare(connection: Any, file: SqliteFile, table: str) -> None:
    """See that the store's tables are there before the application's transaction needs them.

    While that transaction is open no other connection can make them: waiting for it would be waiting for ourselves.
    """
    if not isinstance(connection, sqlite3.Connection):
        raise InvalidSetting("connection", type(connection).__name__, f"a sqlite3 connection to {file.path}")
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone()
    if found is None and connection.in_transaction:
        raise SchemaOutdated(file.shown, (f"the table {table}",))
    if found is None:
        await file.prepared()


@contextlib.contextmanager
def inside(connection: sqlite3.Connection, file: SqliteFile, operation: str) -> Iterator[None]:
    """Refuse a connection to another file; SQLite's errors become ours.

    A transaction is begun when none is open: the application commits it, as it does after its own statements.
    """
    try:
        places = [Path(row[2]) for row in connection.execute("PRAGMA database_list") if row[1] == "main"]
        if not any(place.exists() and place.samefile(file.path) for place in places):
            raise InvalidSetting("connection", str(places[0]), f"a connection to {file.path}")
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        yield
    except (sqlite3.Error, *VALUE_ERRORS) as error:
        raise file.errors.translated(error, operation) from error
