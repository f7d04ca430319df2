"""Applying migrations to a SQLite file: all that is pending in one transaction, by the first process that opens it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from godwit.core.errors import SchemaTooNew
from godwit.core.fault_points import fault_point
from godwit.store.contract import Migration, SchemaStatus
from godwit.store.sql_files import migrations

if TYPE_CHECKING:
    from godwit.store.sqlite.file import SqliteFile

_PACKAGE: Final = "godwit.store.sqlite"
_CREATE: Final = "CREATE TABLE store_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT"


class SqliteMigrations:
    """The schema of one file. It is also upgraded when the file is opened: an embedded store has no operator."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def status(self) -> SchemaStatus:
        def look() -> SchemaStatus:
            if not self._file.path.exists():
                return _compared(())
            connection = sqlite3.connect(f"file:{self._file.path}?mode=ro", uri=True)
            try:
                return schema_status(connection)
            finally:
                connection.close()

        return await self._file.look("reading the schema's version", look)

    async def upgrade(self) -> tuple[Migration, ...]:
        before = await self.status()
        await self._file.write("upgrading the schema", lambda _connection: None)
        return before.pending


def upgrade(connection: sqlite3.Connection, shown: str) -> None:
    """Bring the schema up to date; the caller holds the file lock."""
    status = schema_status(connection)
    if status.unknown:
        raise SchemaTooNew(shown, tuple(map(str, status.unknown)))
    if not status.pending:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Asked again inside the transaction: an older Godwit may not know of our lock.
        if not _has_table(connection):
            connection.execute(_CREATE)
        for migration in schema_status(connection).pending:
            for part in statements(migrations(_PACKAGE)[migration]):
                connection.execute(part)
            fault_point("store.migrating")
            connection.execute("INSERT INTO store_migrations VALUES (?, ?)", (migration.number, migration.name))
        connection.execute("COMMIT")
        fault_point("store.migrated")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def schema_status(connection: sqlite3.Connection) -> SchemaStatus:
    """Compare the migrations a file has with those of this version."""
    rows = (
        connection.execute("SELECT number, name FROM store_migrations ORDER BY number").fetchall()
        if _has_table(connection)
        else []
    )
    return _compared(tuple(Migration(number, name) for number, name in rows))


def _compared(applied: tuple[Migration, ...]) -> SchemaStatus:
    known = migrations(_PACKAGE)
    numbers, mine = {one.number for one in applied}, {one.number for one in known}
    return SchemaStatus(
        applied=applied,
        pending=tuple(one for one in known if one.number not in numbers),
        unknown=tuple(one for one in applied if one.number not in mine),
    )


def _has_table(connection: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'store_migrations'"
    return connection.execute(query).fetchone() is not None


def statements(script: str) -> Iterator[str]:
    """Take a script apart: `executescript` would commit the transaction around it."""
    part = ""
    for line in script.splitlines(keepends=True):
        part += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(part):
            yield part
            part = ""
