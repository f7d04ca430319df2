"""What the store's suite needs to know of each backend."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from godwit.store.contract import Store
from godwit.store.urls import connect
from tests.servers.postgres import fresh_database

BACKENDS: Final = ("postgres", "sqlite")


class StoreHarness:
    """One empty store of a backend, which can be opened any number of times."""

    def __init__(self, backend: str, url: str) -> None:
        self.backend = backend
        self.url = url

    def open(self) -> Store:
        """Return a further store on the same data, as another process would have."""
        return connect(self.url)


@contextlib.contextmanager
def harness_of(backend: str, folder: Path, *, migrated: bool = True) -> Iterator[StoreHarness]:
    """Make an empty store; `migrated` ones have our schema."""
    if backend == "sqlite":
        yield StoreHarness(backend, f"sqlite:///{folder / 'store.db'}")
        return
    with fresh_database(migrated=migrated) as url:
        yield StoreHarness(backend, url)
