"""The writers' lock beside a SQLite file: a queue of processes in the kernel, which lets go when its holder dies.

Broker and store may be in one file, so they wait in one queue. Polling SQLITE_BUSY instead starved one of ten writers.

Two bytes of the file are locked. A writer first takes byte 1, the gate, and keeps it until it has byte 0:
so a writer that lets go and wants again at once finds the gate taken by the one that waited, and cannot starve it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import time
import weakref
from pathlib import Path
from typing import Final

# Locks of the open file, not of the process: broker and store in one process exclude each other too.
_FLOCK: Final = "hhqqi4x"
_HOLD: Final = 0
_GATE: Final = 1

_LOOK_SECONDS: Final = 0.00001
_PR_SET_TIMERSLACK: Final = 29
_prctl: Final = getattr(ctypes.CDLL(None), "prctl", None)


def _prompt_sleeps(*, wanted: bool) -> None:
    """Let short sleeps of this thread end in time, or as usual again: 50 us late and more, a good part of a step."""
    if _prctl is not None:
        _prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1 if wanted else 0), 0, 0, 0)


class FileLock:
    """A lock in a file beside the database; raises OSError when the file cannot be made."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _OPEN.add(self)

    def acquire(self) -> None:
        """Wait for the lock, behind those who already do."""
        self._set(_GATE, fcntl.F_WRLCK)
        try:
            self._set(_HOLD, fcntl.F_WRLCK)
        finally:
            self._set(_GATE, fcntl.F_UNLCK)

    def try_acquire(self) -> bool:
        """Take the lock if no process has it or waits for it."""
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

    def acquire_within(self, seconds: float) -> bool:
        """Take the lock if it comes free within a moment; behind those who wait for it."""
        if self.try_acquire():
            return True
        until = time.monotonic() + seconds
        _prompt_sleeps(wanted=True)
        try:
            while time.monotonic() < until:
                time.sleep(_LOOK_SECONDS)
                if self.try_acquire():
                    return True
        finally:
            _prompt_sleeps(wanted=False)
        return False

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
