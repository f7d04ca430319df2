"""From errors of PostgreSQL and its driver to ours."""

from __future__ import annotations

import asyncpg

from godwit.core.error_text import error_text
from godwit.core.errors import (
    ForeignConnection,
    GodwitError,
    SchemaOutdated,
    StoreBusy,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)

_FULL = (asyncpg.DiskFullError,)
_BUSY = (
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.SerializationError,
    asyncpg.TooManyConnectionsError,
)
_MISSING = (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.UndefinedFunctionError)
_IN_THE_WAY = (
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
    asyncpg.DuplicateFunctionError,
    asyncpg.DuplicateColumnError,
)
_VALUE = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    OverflowError,
    UnicodeError,
)
_REFUSED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)


def translated(error: BaseException, shown: str, operation: str, *, theirs: bool = False) -> GodwitError:
    """Return our error for one of the driver's; `theirs` says that the connection is the application's own."""
    reason = error_text(error)
    if isinstance(error, _FULL):
        return StoreFull(shown)
    if isinstance(error, _BUSY):
        return StoreBusy(operation, reason)
    if isinstance(error, _VALUE):
        # Without the details: they show the row, and with it a payload.
        return StoreRefused(operation, str(error.args[0]) if isinstance(error, asyncpg.PostgresError) else reason)
    if isinstance(error, _MISSING):
        return ForeignConnection(shown, (reason,)) if theirs else SchemaOutdated(shown, (reason,))
    if isinstance(error, _IN_THE_WAY):
        remedy = "Another program uses that name: give Godwit a database of its own, or rename what is in the way."
        return StoreUnavailable(shown, f"{reason}, and Godwit did not make it", remedy)
    if isinstance(error, _REFUSED):
        return StoreUnavailable(shown, reason, "Check the user, password and database of the store's URL.")
    if isinstance(error, TimeoutError):
        return StoreUnavailable(
            shown, f"no answer to {operation} in time", "Check that the server is up and not stuck."
        )
    return StoreUnavailable(shown, reason, "Check that the server is up and can be reached.")
