"""The ledger's write-ahead log: synced when a call asks for it, moved into the file when it is long or idle.

Which wait for the disk serves what:

- A commit does not wait (`synchronous = NORMAL`). A process that is killed loses nothing it committed; a power cut
  takes the newest commits away, whole and from the end. That is bookkeeping: the messages are in RabbitMQ, which
  confirmed them after its own sync, and a copy without a row is taken in again when it is delivered.
- `write_through` waits. It serves the steps after which RabbitMQ has nothing left: dead letters taken over from their
  queue, and letters discarded.
- A checkpoint waits twice, for the log and for the file. It serves the file itself: without it a power cut would leave
  a torn one. All steps wait meanwhile, so it is rare, the log is synced before and without the lock, and the
  sync with which SQLite begins a log anew is taken here and not by the next step.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Final

from godwit.core.logs import get_logger
from godwit.sqlite_writer.connection import short_patience
from godwit.sqlite_writer.write_ahead_log import WriteAheadLog

LONG_BYTES: Final = 32 << 20
"""So long may the log grow while steps are written: some seconds of work, or a few milliseconds to read at a start."""
SHORT_BYTES: Final = 1 << 20
"""A shorter log stays when the ledger is idle: it costs nothing."""
IDLE_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 5.0
"""The pause after a long read of the file kept the log where it is."""

log = get_logger(__name__)


class LedgerLog(WriteAheadLog):
    """The log of one ledger, as one process looks after it."""

    look_seconds = IDLE_SECONDS
    _size = 0
    _since = 0.0
    _not_before = 0.0

    @property
    def needs_care(self) -> bool:
        """Whether the log is to be kept empty; a long one waits for the thread, which looks every second."""
        return self.is_tight

    def is_due(self) -> bool:
        """Say whether the log should be moved into the file now: it is long, or no process writes."""
        size, now = self.size(), time.monotonic()
        if now < self._not_before:
            return False
        if size != self._size:
            self._size, self._since = size, now
        return size > (SHORT_BYTES if now - self._since >= IDLE_SECONDS else LONG_BYTES)

    def move(self) -> None:
        """Move the log into the file and begin it anew; the caller holds the lock, so no process reads or writes."""
        connection = self._connection
        try:
            with short_patience(connection):  # a stranger who reads the file must not stop the work
                busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                self._not_before = time.monotonic() + PAUSE_SECONDS
                return
            connection.execute("INSERT INTO counters VALUES ('logs', 1) ON CONFLICT DO UPDATE SET value = value + 1")
        except sqlite3.Error as error:
            log.warning("the ledger's log could not be moved into its file", error=str(error))
