"""From errors of PostgreSQL and its driver to ours."""

from __future__ import annotations

import asyncpg

from godwit.core.errors import SchemaOutdated, StoreBusy, StoreError, StoreFull, StoreUnavailable

_FULL = (asyncpg.DiskFullError,)
_BUSY = (
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.SerializationError,
    asyncpg.TooManyConnectionsError,
)
_MISSING = (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.UndefinedFunctionError)
_REFUSED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)


def translated(error: BaseException, shown: str, operation: str) -> StoreError:
    """Return our error for one of the driver's."""
    reason = str(error) or type(error).__name__
    if isinstance(error, _FULL):
        return StoreFull(shown)
    if isinstance(error, _BUSY):
        return StoreBusy(operation, reason)
    if isinstance(error, _MISSING):
        return SchemaOutdated(shown, (reason,))
    if isinstance(error, _REFUSED):
        return StoreUnavailable(shown, reason, "Check the user, password and database of the store's URL.")
    if isinstance(error, TimeoutError):
        return StoreUnavailable(
            shown, f"no answer to {operation} in time", "Check that the server is up and not stuck."
        )
    return StoreUnavailable(shown, reason, "Check that the server is up and can be reached.")
