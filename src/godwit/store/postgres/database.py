"""Connections to PostgreSQL: a pool that connects at first use, the schema checked once, errors translated.

Nothing waits for the server when the store is opened, and a server that was away is simply used again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from godwit.core.errors import ExtraRequired, SchemaOutdated, SchemaTooNew, StoreClosed
from godwit.store.contract import Migration, SchemaStatus
from godwit.store.postgres.errors import translated
from godwit.store.sql_files import migrations, statement

try:
    import asyncpg
except ImportError as error:  # pragma: no cover (the tests have it)
    raise ExtraRequired("PostgreSQL", "postgres") from error

PACKAGE: Final = "godwit.store.postgres"
POOL_SIZE: Final = 10
COMMAND_TIMEOUT: Final = timedelta(seconds=60)
CONNECT_TIMEOUT: Final = timedelta(seconds=10)
_DRIVER_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a server that died in the middle of an answer leaves the driver in a wrong state
    OSError,
    TimeoutError,
    OverflowError,  # the driver's words for a value that no column holds
    UnicodeError,
)


def sql(name: str) -> str:
    """Return the statement in `sql/<name>.sql`."""
    return statement(PACKAGE, name)


class SchemaCheck:
    """Looks at the schema once; pools of one store share it, so that an upgrade meanwhile stops none of them."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._passed = False

    async def check(self, connection: asyncpg.Connection) -> None:
        """Refuse a schema of another version."""
        if self._passed:
            return
        status = await schema_status(connection)
        if status.unknown:
            raise SchemaTooNew(self._shown, tuple(map(str, status.unknown)))
        if status.pending:
            raise SchemaOutdated(self._shown, tuple(map(str, status.pending)))
        self._passed = True

    def forget(self) -> None:
        """Look again at the next call."""
        self._passed = False


class PostgresDatabase:
    """What the parts of the store share: `transaction` for changes, `connection` for single statements."""

    def __init__(
        self,
        url: str,
        *,
        shown: str,
        pool_size: int = POOL_SIZE,
        prepare: Callable[[asyncpg.Connection], Awaitable[None]] | None = None,
        settings: Mapping[str, str] | None = None,
        schema: SchemaCheck | None = None,
    ) -> None:
        self._url = url
        self._prepare = prepare
        self._settings = {"application_name": "godwit", "timezone": "UTC"} | dict(settings or {})
        self.shown = shown
        self._pool_size = pool_size
        self._pool: asyncpg.Pool | None = None
        self._opening = asyncio.Lock()
        self.schema = schema or SchemaCheck(shown)
        self._closed = False

    @contextlib.asynccontextmanager
    async def connection(self, operation: str, *, check: bool = True) -> AsyncIterator[asyncpg.Connection]:
        """Lend a connection; every error of the driver that leaves the block becomes one of ours."""
        with self.translating(operation):
            pool = await self._opened()
            async with pool.acquire(timeout=CONNECT_TIMEOUT.total_seconds()) as connection:
                if check:
                    await self.schema.check(connection)
                yield connection

    @contextlib.asynccontextmanager
    async def transaction(self, operation: str) -> AsyncIterator[asyncpg.Connection]:
        """Lend a connection inside a transaction: committed at the end of the block, rolled back by an error."""
        # The transaction ends inside `connection`, so that a server lost at commit is translated too.
        async with self.connection(operation) as connection, connection.transaction():
            yield connection

    @contextlib.asynccontextmanager
    async def apart(self, operation: str) -> AsyncIterator[asyncpg.Connection]:
        """Lend a connection outside the pool, for a thread with a loop of its own."""
        other = PostgresDatabase(
            self._url, shown=self.shown, pool_size=1, prepare=self._prepare, settings=self._settings, schema=self.schema
        )
        try:
            async with other.connection(operation) as connection:
                yield connection
        finally:
            await other.close()

    async def fetch(self, operation: str, name: str, *arguments: Any) -> list[Any]:
        """Run one statement of a file and return its rows."""
        async with self.connection(operation) as connection:
            rows: list[Any] = await connection.fetch(sql(name), *arguments)
            return rows

    async def fetchrow(self, operation: str, name: str, *arguments: Any) -> Any | None:
        """Run one statement of a file and return its first row."""
        async with self.connection(operation) as connection:
            return await connection.fetchrow(sql(name), *arguments)

    def translating(self, operation: str, *, theirs: bool = False) -> contextlib.AbstractContextManager[None]:
        """Turn errors of the driver into ours; `theirs` says that the connection is the application's own."""
        return _translating(self.shown, operation, theirs=theirs)

    async def _opened(self) -> asyncpg.Pool:
        if self._closed:
            raise StoreClosed(self.shown)
        async with self._opening:
            if self._pool is None:
                # No connection is made here: a server that is down shows when it is asked for something.
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=0,
                    max_size=self._pool_size,
                    timeout=CONNECT_TIMEOUT.total_seconds(),
                    command_timeout=COMMAND_TIMEOUT.total_seconds(),
                    init=self._prepare,
                    server_settings=self._settings,
                )
        return self._pool

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        if self._pool is not None:
            try:
                await asyncio.wait_for(self._pool.close(), timeout=5)
            except _DRIVER_ERRORS:
                self._pool.terminate()
            except BaseException:  # a caller that does not wait for the end leaves nothing open either
                self._pool.terminate()
                raise


@contextlib.contextmanager
def _translating(shown: str, operation: str, *, theirs: bool = False) -> Iterator[None]:
    try:
        yield
    except _DRIVER_ERRORS as error:
        raise translated(error, shown, operation, theirs=theirs) from error


async def schema_status(connection: asyncpg.Connection) -> SchemaStatus:
    """Compare the migrations a database has with those of this version."""
    known = migrations(PACKAGE)
    there = await connection.fetchval("SELECT to_regclass('godwit_migrations') IS NOT NULL")
    rows = await connection.fetch("SELECT number, name FROM godwit_migrations ORDER BY number") if there else []
    applied = tuple(Migration(row["number"], row["name"]) for row in rows)
    numbers = {one.number for one in applied}
    return SchemaStatus(
        applied=applied,
        pending=tuple(one for one in known if one.number not in numbers),
        unknown=tuple(one for one in applied if one.number not in {mine.number for mine in known}),
    )
