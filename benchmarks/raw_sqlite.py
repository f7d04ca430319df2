"""The bare loops the SQLite broker is measured against. Frozen: change the broker, not these.

A minimal queue on one table: no groups, lanes, deduplication, journal, counters or wake-ups. It has what any queue on
SQLite needs: WAL, one transaction per batch, an index to find what is ready.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

CLAIM = """
    UPDATE bare SET state = 1 WHERE id IN (SELECT id FROM bare WHERE state = 0 ORDER BY id LIMIT ?) RETURNING id, body
"""


class RawQueue:
    """One plain table."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {synchronous}")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS bare (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, body BLOB NOT NULL)"
        )
        self._connection.execute("CREATE INDEX IF NOT EXISTS bare_by_state ON bare (state, id)")

    def publish(self, bodies: Sequence[bytes]) -> None:
        """Insert a batch."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO bare (state, body) VALUES (0, ?)", [(body,) for body in bodies])
        self._connection.execute("COMMIT")

    def pull(self, limit: int) -> list[tuple[int, bytes]]:
        """Claim a batch."""
        self._connection.execute("BEGIN IMMEDIATE")
        rows = self._connection.execute(CLAIM, (limit,)).fetchall()
        self._connection.execute("COMMIT")
        return rows

    def ack(self, ids: Sequence[int]) -> None:
        """Delete a batch."""
        places = ", ".join("?" * len(ids))
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(f"DELETE FROM bare WHERE id IN ({places})", ids)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
