"""The ledger's write-ahead log: synced when somebody asks for it, moved into the file when it is long or nobody writes.

Which wait for the disk serves what:

- A commit does not wait (`synchronous = NORMAL`). A process that is killed loses nothing it committed; a power cut
  takes the newest commits away, whole and from the end. That is bookkeeping: the messages are in RabbitMQ, which
  confirmed them after its own sync, and a copy without a row is taken in again when it is delivered.
- `write_through` waits. It serves the steps after which RabbitMQ has nothing left: dead letters taken over from their
  queue, and letters discarded.
- A checkpoint waits twice, for the log and for the file. It serves the file itself: without it a power cut would leave
  a torn one. Steps of everybody wait meanwhile, so it is rare, the log is synced before and without the lock, and the
  sync with which SQLite begins a log anew is taken here and not by the next step.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from godwit.core.logs import get_logger

LONG_BYTES: Final = 32 << 20
"""So long may the log grow while somebody writes: some seconds of work, or a few milliseconds to read at a start."""
BUSY_SECONDS: Final = 10.0
SHORT_BYTES: Final = 1 << 20
"""What is shorter stays when nobody writes: it costs nothing."""
IDLE_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 5.0
"""After somebody who reads the file for long kept the log where it is."""

log = get_logger(__name__)


class LedgerLog:
    """The log of one ledger, as one process looks after it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = f"{path}-wal"
        self._connection = connection
        self._size, self._since = 0, time.monotonic()
        self._not_before = 0.0

    def write_through(self) -> None:
        """Return when everything committed so far is on the disk. Needs no lock: nobody else waits meanwhile."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # its last user moved it into the file and took it away
        try:
            os.fdatasync(file)
        finally:
            os.close(file)

    def is_due(self) -> bool:
        """Say whether the log should be moved into the file now: it is long, or nobody writes, here or elsewhere."""
        try:
            size = os.stat(self._path).st_size  # noqa: PTH116
        except FileNotFoundError:
            return False
        now = time.monotonic()
        if now < self._not_before:
            return False
        if size != self._size:
            self._size, self._since = size, now
        return size > (SHORT_BYTES if now - self._since >= IDLE_SECONDS else LONG_BYTES)

    def move(self) -> None:
        """Move the log into the file and begin it anew; the caller holds the lock, so nobody reads or writes."""
        connection = self._connection
        try:
            # Shorter than any step's patience: a stranger who reads the file must not stop the work.
            connection.execute("PRAGMA busy_timeout = 50")
            busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                self._not_before = time.monotonic() + PAUSE_SECONDS
                return
            connection.execute("INSERT INTO counters VALUES ('logs', 1) ON CONFLICT DO UPDATE SET value = value + 1")
        except sqlite3.Error as error:
            log.warning("the ledger's log could not be moved into its file", error=str(error))
        finally:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")
