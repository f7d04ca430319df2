"""The store in a SQLite file, usually the broker's own."""

from godwit.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
