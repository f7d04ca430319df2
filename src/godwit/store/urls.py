"""From a URL to a store; each backend is imported only when its scheme is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from godwit.core.errors import ExtraRequired, UnknownScheme
from godwit.store.contract import Store


def _postgres(url: str) -> Store:
    try:
        from godwit.store.postgres import PostgresStore
    except ImportError as error:
        raise ExtraRequired("The PostgreSQL store", "postgres") from error

    return PostgresStore(url)


def _sqlite(url: str) -> Store:
    from godwit.store.sqlite import SqliteStore

    return SqliteStore.from_url(url)


SCHEMES: Final[dict[str, Callable[[str], Store]]] = {
    "postgresql": _postgres,
    "postgres": _postgres,
    "sqlite": _sqlite,
}


def connect(url: str) -> Store:
    """Return the store a URL names, such as `postgresql://user@host/database` or `sqlite:///godwit.db`."""
    scheme, separator, _ = url.partition("://")
    make = SCHEMES.get(scheme) if separator else None
    if make is None:
        raise UnknownScheme(scheme if separator else url, tuple(SCHEMES), "store")
    return make(url)
