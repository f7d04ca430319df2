"""The writers' queue beside a SQLite file, shared with the broker on the same file.

The bytes and their order are the broker's: byte 0 of `<file>.lock` is held by whoever writes; byte 1, the gate, by
whoever waits next. Waiting in the kernel is fair; polling SQLITE_BUSY starved one of ten writers for seconds.
"""

from __future__ import annotations

import fcntl
import os
import struct
import weakref
from pathlib import Path
from typing import Final

# Locks of the open file, not of the process: broker and store in one process exclude each other too.
_FLOCK: Final = "hhqqi4x"
_HOLD: Final = 0
_GATE: Final = 1


class FileLock:
    """A lock in a file beside the database; raises OSError when the file cannot be made."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _OPEN.add(self)

    def __enter__(self) -> None:
        self._set(_GATE, fcntl.F_WRLCK)
        try:
            self._set(_HOLD, fcntl.F_WRLCK)
        finally:
            self._set(_GATE, fcntl.F_UNLCK)

    def __exit__(self, *exc: object) -> None:
        self._set(_HOLD, fcntl.F_UNLCK)

    def _set(self, byte: int, kind: int) -> None:
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLKW, struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0))

    def close(self) -> None:
        """Close the file, which lets go of everything."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


_OPEN: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _close_in_child() -> None:
    """Let go in a forked child: it shares the open file and would keep the lock alive after its parent's death."""
    for lock in list(_OPEN):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)
