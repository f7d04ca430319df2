"""Applying migrations in PostgreSQL: each in its own transaction, one upgrader at a time, workers going on."""

from __future__ import annotations

from typing import Final

import asyncpg

from godwit.core.errors import SchemaTooNew
from godwit.core.fault_points import fault_point
from godwit.store.contract import Migration, SchemaStatus
from godwit.store.postgres.database import PACKAGE, PostgresDatabase, schema_status
from godwit.store.sql_files import migrations

LOCK: Final = 0x60D317
"""The advisory lock of upgraders; taken for a transaction, so it goes with its holder."""
LOCK_TIMEOUT: Final = "5s"
"""A migration that waits longer for a table gives up: all statements behind it would wait too."""

_CREATE = """CREATE TABLE IF NOT EXISTS godwit_migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
)"""


class PostgresMigrations:
    """The schema of one database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def status(self) -> SchemaStatus:
        async with self._database.connection("reading the schema's version", check=False) as connection:
            return await schema_status(connection)

    async def upgrade(self) -> tuple[Migration, ...]:
        done: list[Migration] = []
        async with self._database.connection("upgrading the schema", check=False) as connection:
            while (applied := await self._next(connection)) is not None:
                done.append(applied)
        self._database.schema.forget()
        return tuple(done)

    async def _next(self, connection: asyncpg.Connection) -> Migration | None:
        """Apply the first pending migration and return it."""
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK, timeout=600)
            await connection.execute(_CREATE)
            status = await schema_status(connection)
            if status.unknown:
                raise SchemaTooNew(self._database.shown, tuple(map(str, status.unknown)))
            if not status.pending:
                return None
            migration = status.pending[0]
            await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
            await connection.execute(migrations(PACKAGE)[migration], timeout=3600)
            fault_point("store.migrating")
            await connection.execute(
                "INSERT INTO godwit_migrations (number, name) VALUES ($1, $2)", migration.number, migration.name
            )
        fault_point("store.migrated")
        return migration
