"""From errors of SQLite to ours."""

from __future__ import annotations

import sqlite3
from typing import Final

from godwit.core.errors import GodwitError, SchemaOutdated, StoreBusy, StoreFull, StoreRefused, StoreUnavailable

_PRIMARY: Final = 0xFF
VALUE_ERRORS: Final = (OverflowError, UnicodeError, sqlite3.DataError)
"""What Python raises for values that no column holds."""
_SHM_SIZE: Final = 4874  # SQLITE_IOERR_SHMSIZE: the disk has no room for the shared memory file


def translated(error: Exception, shown: str, operation: str) -> GodwitError:
    """Return our error for one of SQLite's or of the file system's."""
    if isinstance(error, VALUE_ERRORS):
        return StoreRefused(operation, str(error))
    code = getattr(error, "sqlite_errorcode", 0) or 0
    match code & _PRIMARY:
        case sqlite3.SQLITE_FULL:
            return StoreFull(shown)
        case sqlite3.SQLITE_IOERR if code == _SHM_SIZE:
            return StoreFull(shown)
        case sqlite3.SQLITE_CONSTRAINT | sqlite3.SQLITE_MISMATCH | sqlite3.SQLITE_TOOBIG:
            return StoreRefused(operation, str(error))
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusy(operation, str(error))
        case sqlite3.SQLITE_ERROR if "no such table" in str(error) or "no such column" in str(error):
            return SchemaOutdated(shown, (str(error),))
        case _:
            remedy = "Check that the file and its directory are there, writable, readable and on a healthy disk."
            return StoreUnavailable(shown, str(error), remedy)
