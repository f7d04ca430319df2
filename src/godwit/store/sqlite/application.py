"""Working inside an application's own SQLite transaction, with sqlite3 or aiosqlite."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Protocol

from godwit.core.errors import InvalidSetting, SchemaOutdated
from godwit.sqlite_writer.errors import VALUE_ERRORS
from godwit.store.driver_connections import driver_connection, is_of
from godwit.store.sqlite.file import SqliteFile


class SqliteTransaction(Protocol):
    """Runs statements in the application's transaction; rows are tuples, whatever the application has set."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    async def execute(self, statement: str, values: Any = ()) -> int:
        """Run a statement and return how many rows it changed."""
        ...

    async def executemany(self, statement: str, values: Iterable[Any]) -> None:
        """Run a statement once for each of the values."""
        ...

    async def fetchall(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        ...


class DirectTransaction:
    """A transaction of sqlite3."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    async def execute(self, statement: str, values: Any = ()) -> int:
        return self._connection.execute(statement, values).rowcount

    async def executemany(self, statement: str, values: Iterable[Any]) -> None:
        self._connection.executemany(statement, values)

    async def fetchall(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor(sqlite3.Cursor)
        cursor.row_factory = None
        return cursor.execute(statement, values).fetchall()


class AiosqliteTransaction:
    """A transaction of aiosqlite."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    async def execute(self, statement: str, values: Any = ()) -> int:
        async with self._connection.execute(statement, values) as cursor:
            return int(cursor.rowcount)

    async def executemany(self, statement: str, values: Iterable[Any]) -> None:
        async with self._connection.executemany(statement, values):
            pass

    async def fetchall(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        async with self._connection.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(statement, values)
            return list(await cursor.fetchall())


async def _transaction_of(connection: Any, file: SqliteFile) -> SqliteTransaction:
    found = await driver_connection(connection)
    if isinstance(found, sqlite3.Connection):
        return DirectTransaction(found)
    if is_of(found, "aiosqlite", "Connection"):
        return AiosqliteTransaction(found)
    allowed = f"a connection of sqlite3 or aiosqlite, of SQLAlchemy or Django on one of them, to {file.path}"
    raise InvalidSetting("connection", type(connection).__name__, allowed)


async def _refuse_another_file(transaction: SqliteTransaction, file: SqliteFile) -> None:
    rows = await transaction.fetchall("PRAGMA database_list")
    places = [Path(place) for _, name, place in rows if name == "main"]
    if not any(place.exists() and place.samefile(file.path) for place in places):
        raise InvalidSetting("connection", str(places[0]), f"a connection to {file.path}")


async def _prepare(transaction: SqliteTransaction, file: SqliteFile, table: str) -> None:
    """See that the store's tables are there before the application's transaction needs them.

    While that transaction is open no other connection can make them: waiting for it would be waiting for ourselves.
    """
    found = await transaction.fetchall("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
    if not found and transaction.in_transaction:
        raise SchemaOutdated(file.shown, (f"the table {table}",))
    if not found:
        await file.prepared()


@contextlib.asynccontextmanager
async def inside(connection: Any, file: SqliteFile, table: str, operation: str) -> AsyncIterator[SqliteTransaction]:
    """Lend the application's transaction; a connection to another file is refused, SQLite's errors become ours.

    A transaction is begun when none is open: the application commits it, as it does after its own statements.
    """
    transaction = await _transaction_of(connection, file)
    try:
        if file.path.exists():  # before its tables are looked for: those of another file are not missing
            await _refuse_another_file(transaction, file)
        await _prepare(transaction, file, table)
        await _refuse_another_file(transaction, file)
        if not transaction.in_transaction:
            await transaction.execute("BEGIN IMMEDIATE")
        yield transaction
    except (sqlite3.Error, *VALUE_ERRORS) as error:
        raise file.errors.translated(error, operation) from error
