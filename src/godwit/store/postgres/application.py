"""Working inside an application's own PostgreSQL transaction, with asyncpg or with psycopg 3."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import asyncpg

from godwit.core.errors import InvalidSetting
from godwit.store.driver_connections import driver_connection, is_of

_ALLOWED: Final = (
    "a connection of asyncpg or psycopg 3, of SQLAlchemy or Django on one of them, to the store's database,"
    " inside a transaction"
)


class PostgresTransaction(Protocol):
    """Runs statements with `$1` parameters in the application's transaction."""

    async def execute(self, statement: str, *values: Any) -> None:
        """Run a statement."""
        ...

    async def fetchrow(self, statement: str, *values: Any) -> Mapping[str, Any] | None:
        """Run a statement and return its first row, if it has one."""
        ...


async def transaction_of(connection: Any) -> PostgresTransaction:
    """Return the transaction of a connection; one outside a transaction would not hold both together."""
    found = await driver_connection(connection)
    if isinstance(found, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        if found.is_in_transaction():
            return AsyncpgTransaction(found)
    elif is_of(found, "psycopg", "Connection", "AsyncConnection") and not _commits_each_statement(found):
        return PsycopgTransaction(found)
    raise InvalidSetting("connection", type(connection).__name__, _ALLOWED)


def _commits_each_statement(connection: Any) -> bool:
    """Say whether a psycopg connection has autocommit on and no transaction open."""
    from psycopg.pq import TransactionStatus

    return bool(connection.autocommit) and connection.info.transaction_status is TransactionStatus.IDLE


class AsyncpgTransaction:
    """A transaction of asyncpg."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def execute(self, statement: str, *values: Any) -> None:
        await self._connection.execute(statement, *values)

    async def fetchrow(self, statement: str, *values: Any) -> Mapping[str, Any] | None:
        row: Mapping[str, Any] | None = await self._connection.fetchrow(statement, *values)
        return row


class PsycopgTransaction:
    """A transaction of psycopg 3, whose connection is synchronous or asynchronous."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def execute(self, statement: str, *values: Any) -> None:
        with _known_errors():
            await self._run(statement, values)

    async def fetchrow(self, statement: str, *values: Any) -> Mapping[str, Any] | None:
        with _known_errors():
            cursor = await self._run(statement, values)
            found = cursor.fetchone()
            row: Mapping[str, Any] | None = await found if hasattr(found, "__await__") else found
            return row

    async def _run(self, statement: str, values: tuple[Any, ...]) -> Any:
        # Raw cursors take PostgreSQL's own `$1`, and rows by name whatever the application has set.
        from psycopg import AsyncConnection, AsyncRawCursor, RawCursor
        from psycopg.rows import dict_row

        if isinstance(self._connection, AsyncConnection):
            cursor = AsyncRawCursor(self._connection, row_factory=dict_row)
            await cursor.execute(statement, values)
            return cursor
        direct = RawCursor(self._connection, row_factory=dict_row)
        direct.execute(statement, values)
        return direct


@contextlib.contextmanager
def _known_errors() -> Iterator[None]:
    """Turn psycopg's errors into asyncpg's of the same SQLSTATE, which the store translates."""
    from psycopg import Error, InterfaceError, OperationalError

    try:
        yield
    except Error as error:
        if error.sqlstate is not None:
            of_state = type(asyncpg.PostgresError).get_message_class_for_sqlstate(error.sqlstate)
            raise of_state(error.diag.message_primary or str(error)) from error
        if isinstance(error, OperationalError | InterfaceError):
            raise asyncpg.InterfaceError(str(error)) from error
        raise asyncpg.DataError(str(error)) from error
