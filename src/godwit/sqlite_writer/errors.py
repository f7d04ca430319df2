"""The troubles a SQLite file can have, and the table that makes them errors of the file's owner."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from godwit.core.errors import GodwitError

VALUE_ERRORS: Final = (OverflowError, UnicodeError, sqlite3.DataError)
"""What Python raises for values that no column holds."""
_PRIMARY: Final = 0xFF
_SHM_SIZE: Final = 4874  # SQLITE_IOERR_SHMSIZE: the disk has no room for the shared memory file


class FileTrouble(Enum):
    """What is wrong with a file, or with what a step wanted of it."""

    FULL = auto()
    CORRUPT = auto()
    BUSY = auto()
    REFUSED = auto()
    """A value or a row that the schema does not take."""
    OUTDATED = auto()
    """A table or a column that is not there."""
    OTHER = auto()


_TROUBLES: Final = {
    sqlite3.SQLITE_FULL: FileTrouble.FULL,
    sqlite3.SQLITE_CORRUPT: FileTrouble.CORRUPT,
    sqlite3.SQLITE_NOTADB: FileTrouble.CORRUPT,
    sqlite3.SQLITE_BUSY: FileTrouble.BUSY,
    sqlite3.SQLITE_LOCKED: FileTrouble.BUSY,
    sqlite3.SQLITE_CONSTRAINT: FileTrouble.REFUSED,
    sqlite3.SQLITE_MISMATCH: FileTrouble.REFUSED,
    sqlite3.SQLITE_TOOBIG: FileTrouble.REFUSED,
}


def trouble_of(error: Exception) -> FileTrouble | None:
    """Return what an error of SQLite, of the disk or of a value means; None for any other error."""
    if isinstance(error, OSError):
        return FileTrouble.FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else FileTrouble.OTHER
    code = getattr(error, "sqlite_errorcode", 0) or 0
    if not code and isinstance(error, VALUE_ERRORS):
        return FileTrouble.REFUSED
    if not isinstance(error, sqlite3.Error):
        return None
    if code == _SHM_SIZE:
        return FileTrouble.FULL
    if code & _PRIMARY == sqlite3.SQLITE_ERROR and str(error).startswith(("no such table", "no such column")):
        return FileTrouble.OUTDATED
    return _TROUBLES.get(code & _PRIMARY, FileTrouble.OTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorTable:
    """The errors of one owner of a file."""

    closed: Callable[[], GodwitError]
    late: Callable[[str, float], GodwitError]
    """The operation, and the seconds for which it waited for other writers."""
    unwritten: Callable[[str], GodwitError]
    """What the disk said when it did not take the log."""
    troubles: Mapping[FileTrouble, Callable[[str, str], GodwitError]]
    """The operation and what SQLite said. A trouble without an entry is `OTHER`, which must have one."""

    def translated(self, error: Exception, operation: str) -> Exception:
        """Return the owner's error for one of the file's; any other error as it is."""
        trouble = trouble_of(error)
        make = self.troubles.get(trouble) if trouble is not None else None
        if make is None and isinstance(error, (sqlite3.Error, OSError)):
            make = self.troubles[FileTrouble.OTHER]
        return make(operation, str(error)) if make is not None else error

    def not_on_disk(self, error: OSError, operation: str) -> Exception:
        """Return the owner's error for a log that the disk did not take."""
        if trouble_of(error) is FileTrouble.FULL:
            return self.translated(error, operation)
        return self.unwritten(error.strerror or str(error))
