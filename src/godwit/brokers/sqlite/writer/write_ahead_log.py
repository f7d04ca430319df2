"""The write-ahead log: written through to the disk when somebody asks for it, moved into the file now and then.

Commits leave the log to the kernel (synchronous = NORMAL). A durable call is answered after `write_through`, which
needs no lock: while one process waits for the disk the others go on, and one wait covers whatever was committed before
it. A checkpoint syncs the log itself before it takes anything out of it, so it may come before or after.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from godwit.core.fault_points import fault_point

CHECKPOINT_SECONDS: Final = 1.0
WAL_BYTES: Final = 64 << 20
QUICK_DISK_SECONDS: Final = 0.002
TIGHT_SECONDS: Final = 60.0
"""After a full disk the log is kept empty for so long: it must not take the room the file needs to take the log in."""


class WriteAheadLog:
    """The log of one database file, as one process looks after it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = f"{path}-wal"
        self._connection = connection
        self._checkpointed = time.monotonic()
        self._tight_until = 0.0
        self._disk_seconds = QUICK_DISK_SECONDS

    @property
    def disk_is_quick(self) -> bool:
        """Whether the last few answers of the disk came at once."""
        return self._disk_seconds < QUICK_DISK_SECONDS

    def write_through(self) -> None:
        """Return when everything committed so far is on the disk."""
        began = time.monotonic()
        # Opened anew each time: a descriptor kept for long might be that of a file that is no longer the log.
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(file)
        finally:
            os.close(file)
        # The slowest of the last few counts: one slow answer sends publishes back to the thread for a while.
        self._disk_seconds = max(time.monotonic() - began, self._disk_seconds * 0.9)

    def disk_was_full(self) -> None:
        """Keep the log empty for a while."""
        self._tight_until = time.monotonic() + TIGHT_SECONDS

    @property
    def needs_care(self) -> bool:
        """Whether a checkpoint is due, or the log is to be kept empty."""
        now = time.monotonic()
        return now - self._checkpointed >= CHECKPOINT_SECONDS or now < self._tight_until

    # Only the holder of the file lock does these

    def make_room(self) -> None:
        """After a full disk, give the room the log takes back, if there is enough left for the file to take it in."""
        if time.monotonic() >= self._tight_until:
            return
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA busy_timeout = 50")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._connection.execute("PRAGMA busy_timeout = 5000")

    def checkpoint(self) -> None:
        """Move the log into the file, while no other writer can be at work."""
        now = time.monotonic()
        if now - self._checkpointed < CHECKPOINT_SECONDS:
            return
        self._checkpointed = now
        try:
            large = os.stat(self._path).st_size > WAL_BYTES  # noqa: PTH116
            if large:
                self._connection.execute("PRAGMA busy_timeout = 50")  # a reader may hold the log: better luck next time
            fault_point("sqlite.before_checkpoint")
            self._connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if large else 'PASSIVE'})").fetchall()
            if large:
                self._connection.execute("PRAGMA busy_timeout = 5000")
        except (sqlite3.Error, OSError):
            return  # what is in the log is safe there; the next second tries again
