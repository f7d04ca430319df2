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


def clear(connection: sqlite3.Connection, first: str, until: str) -> None:
    """Remove the values from the key `first` on, up to `until` without it."""
    connection.execute("DELETE FROM broker_shared WHERE key >= ? AND key < ?", (first, until))


def scan(
    connection: sqlite3.Connection, prefix: str, after: str, limit: int | None, now_ms: int
) -> Mapping[str, SharedEntry]:
    """Return the values whose key begins with `prefix`, by their keys: those beyond `after`, at most `limit`."""
    rows = connection.execute(
        "SELECT key, value, version FROM broker_shared WHERE key >= ?1 AND key < ?1 || char(0x10ffff) AND key > ?2"
        " AND (until IS NULL OR until > ?3) ORDER BY key LIMIT ?4",
        (prefix, after, now_ms, -1 if limit is None else limit),
    )
    return {key: SharedEntry(value, version) for key, value, version in rows}


def forget(connection: sqlite3.Connection, now_ms: int) -> None:
    """Drop what is past its ttl."""
    connection.execute("DELETE FROM broker_shared WHERE until <= ?", (now_ms,))
