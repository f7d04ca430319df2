"""The store in a PostgreSQL database (15 or later)."""

from godwit.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
