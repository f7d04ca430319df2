"""Small values that all processes see, with versions and ttls."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from godwit.brokers.contract import SharedEntry


def get(connection: sqlite3.Connection, key: str, now_ms: int) -> SharedEntry | None:
    """Return the value, or None when it is missing or past its ttl."""
    row = connection.execute(
        "SELECT value, version FROM broker_shared WHERE key = ? AND (until IS NULL OR until > ?)", (key, now_ms)
    ).fetchone()
    return SharedEntry(*row) if row is not None else None


def put(
    connection: sqlite3.Connection, key: str, value: bytes, expected: int | None, until: int | None, now_ms: int
) -> int | None:
    """Write when the present version is `expected`; return the new version, or None."""
    present = get(connection, key, now_ms)
    if (present.version if present is not None else None) != expected:
        return None
    # One counter for all keys: a version never comes back, even after a value was deleted.
    (version,) = connection.execute("UPDATE broker_versions SET version = version + 1 RETURNING version").fetchall()[0]
    connection.execute("INSERT OR REPLACE INTO broker_shared VALUES (?, ?, ?, ?)", (key, value, version, until))
    return int(version)


def delete(connection: sqlite3.Connection, key: str) -> None:
    """Remove the value."""
    connection.execute("DELETE FROM broker_shared WHERE key = ?", (key,))


def scan(connection: sqlite3.Connection, prefix: str, now_ms: int) -> Mapping[str, SharedEntry]:
    """Return all values whose key begins with `prefix`."""
    rows = connection.execute(
        "SELECT key, value, version FROM broker_shared WHERE key >= ? AND (until IS NULL OR until > ?) ORDER BY key",
        (prefix, now_ms),
    )
    found = {}
    for key, value, version in rows:
        if not key.startswith(prefix):
            break
        found[key] = SharedEntry(value, version)
    return found


def forget(connection: sqlite3.Connection, now_ms: int) -> None:
    """Drop what is past its ttl."""
    connection.execute("DELETE FROM broker_shared WHERE until <= ?", (now_ms,))
