"""The driver's own connection below what an application holds: SQLAlchemy's and Django's objects are taken apart.

No library is imported here: an object of SQLAlchemy can only come from a program that has imported it.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from godwit.core.errors import InvalidSetting

_IN_USE: Final = "SELECT 1"
"""The transaction of an SQLAlchemy connection begins with its first statement."""


def is_of(value: object, module: str, *names: str) -> bool:
    """Say whether a value is of one of a library's classes, without importing the library."""
    library = sys.modules.get(module)
    return library is not None and isinstance(value, tuple(getattr(library, name) for name in names))


async def driver_connection(connection: Any) -> Any:
    """Return the driver's connection, with the application's transaction begun where SQLAlchemy delays that."""
    if is_of(connection, "sqlalchemy.ext.asyncio", "AsyncSession", "async_scoped_session"):
        connection = await connection.connection()
    if is_of(connection, "sqlalchemy.orm", "Session", "scoped_session"):
        connection = connection.connection()
    if is_of(connection, "sqlalchemy.ext.asyncio", "AsyncConnection"):
        await connection.exec_driver_sql(_IN_USE)
        return (await connection.get_raw_connection()).driver_connection
    if is_of(connection, "sqlalchemy.engine", "Connection"):
        connection.exec_driver_sql(_IN_USE)
        return connection.connection.driver_connection
    if _is_of_django(connection):
        if not connection.in_atomic_block:
            raise InvalidSetting("connection", "a Django connection outside a transaction", "used in atomic()")
        return connection.connection
    return connection


def is_in_transaction(connection: Any) -> bool:
    """Say whether a synchronous connection has a transaction open, as far as its library says so."""
    if _is_of_django(connection):
        return bool(connection.in_atomic_block)
    said = getattr(connection, "in_transaction", False)
    return bool(said() if callable(said) else said)


def _is_of_django(connection: Any) -> bool:
    return is_of(connection, "django.utils.connection", "ConnectionProxy") or is_of(
        connection, "django.db.backends.base.base", "BaseDatabaseWrapper"
    )
