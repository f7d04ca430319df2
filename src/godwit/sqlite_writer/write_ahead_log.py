"""The write-ahead log: written through to the disk for durable steps, moved into the file by its owner's rules.

Commits leave the log to the kernel (synchronous = NORMAL). A durable step is answered after `write_through`, which
needs no lock: while one process waits for the disk the others go on, and one wait covers whatever was committed before
it. A checkpoint syncs the log itself before it takes anything out of it, so it may come before or after.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from godwit.core.fault_points import fault_point
from godwit.sqlite_writer.connection import short_patience

QUICK_DISK_SECONDS: Final = 0.002
TIGHT_SECONDS: Final = 60.0
"""After a full disk the log is kept empty for so long: it must not take the room the file needs to take the log in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRules:
    """When the log is moved into the file."""

    every_seconds: float = 1.0
    """So often while there is work, whatever the log's length. What is in the log stays there and is overwritten."""
    cut_bytes: int = 64 << 20
    """A longer log is emptied and cut. A reader may keep it as it is: then it is tried again later."""
    long_bytes: int | None = None
    long_seconds: float = 1.0
    """A log longer than `long_bytes` is moved this often, where that is more often than `every_seconds`."""


class WriteAheadLog:
    """The log of one database file, as one process looks after it."""

    look_seconds: float | None = None
    """How often the log is looked at when there is no work; None when that is not needed."""

    def __init__(self, path: Path, connection: sqlite3.Connection, rules: CheckpointRules, *, owner: str) -> None:
        self._path = f"{path}-wal"
        self._connection = connection
        self._rules = rules
        self._owner = owner
        self._moved = time.monotonic()
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
        """Whether the log should be moved, or is to be kept empty: work for the thread."""
        return self.is_tight or self.is_due()

    @property
    def is_tight(self) -> bool:
        """Whether the disk was full a short while ago."""
        return time.monotonic() < self._tight_until

    def is_due(self) -> bool:
        """Say whether the log should be moved into the file now."""
        rules, since = self._rules, time.monotonic() - self._moved
        if since >= rules.every_seconds:
            return True
        return rules.long_bytes is not None and since >= rules.long_seconds and self.size() > rules.long_bytes

    def size(self) -> int:
        """Return the log's length in bytes; 0 when there is none."""
        try:
            return os.stat(self._path).st_size  # noqa: PTH116
        except OSError:
            return 0

    # Only the holder of the file lock does these

    def make_room(self) -> None:
        """After a full disk, give the room the log takes back, if there is enough left for the file to take it in."""
        if self.is_tight:
            with contextlib.suppress(sqlite3.Error), short_patience(self._connection):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def move(self) -> None:
        """Move the log into the file, while no other writer can be at work."""
        self._moved = time.monotonic()
        cut = self.size() > self._rules.cut_bytes
        # What is in the log is safe there: where a reader or the disk is in the way, the next time tries again.
        with contextlib.suppress(sqlite3.Error):
            fault_point(f"{self._owner}.before_checkpoint")
            if cut:
                with short_patience(self._connection):
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            else:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
