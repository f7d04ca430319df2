"""The writers' lock: a queue of processes in the kernel, which lets go when its holder dies.

Two bytes of the file are locked. Whoever wants byte 0 first takes byte 1, the gate, and keeps it until he has byte 0:
so a writer that lets go and wants again at once finds the gate taken by the one who waited, and cannot starve him.
"""

from __future__ import annotations

import fcntl
import os
import struct
import weakref
from pathlib import Path
from typing import Final

from godwit.core.errors import BrokerUnavailable

# Locks of the open file, not of the process: two brokers in one process exclude each other too.
_FLOCK: Final = "hhqqi4x"
_HOLD: Final = 0
_GATE: Final = 1


class FileLock:
    """A lock in a file beside the database."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            remedy = "The directory must be writable: SQLite keeps files beside the database."
            raise BrokerUnavailable(str(path), error.strerror or str(error), remedy) from error
        _OPEN.add(self)

    def acquire(self) -> None:
        """Wait for the lock, behind those who already do."""
        self._set(_GATE, fcntl.F_WRLCK)
        try:
            self._set(_HOLD, fcntl.F_WRLCK)
        finally:
            self._set(_GATE, fcntl.F_UNLCK)

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it or waits for it."""
        try:
            self._set(_GATE, fcntl.F_WRLCK, command=fcntl.F_OFD_SETLK)
        except BlockingIOError:
            return False
        try:
            self._set(_HOLD, fcntl.F_WRLCK, command=fcntl.F_OFD_SETLK)
        except BlockingIOError:
            return False
        finally:
            self._set(_GATE, fcntl.F_UNLCK)
        return True

    def release(self) -> None:
        """Let the next one in."""
        self._set(_HOLD, fcntl.F_UNLCK)

    def _set(self, byte: int, kind: int, *, command: int = fcntl.F_OFD_SETLKW) -> None:
        fcntl.fcntl(self._file, command, struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0))

    def close(self) -> None:
        """Close the file, which lets go of everything."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


_OPEN: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _close_in_child() -> None:
    """Let go in a forked child: it shares the open file and would keep the lock alive after its parent's death."""
    for lock in list(_OPEN):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)
