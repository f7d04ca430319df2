"""The SQLite store: its parts put together."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

from godwit.core.urls import sqlite_file
from godwit.store.sqlite.file import BUSY_SECONDS, SqliteFile
from godwit.store.sqlite.journal import SqliteJournal
from godwit.store.sqlite.ledger import SqliteLedger
from godwit.store.sqlite.messages import SqliteMessages
from godwit.store.sqlite.migrate import SqliteMigrations
from godwit.store.sqlite.outbox import SqliteOutbox
from godwit.store.sqlite.pipeline import SqlitePipelines
from godwit.store.sqlite.record import SqliteRecording
from godwit.store.sqlite.schedule.plans import SqlitePlans
from godwit.store.sqlite.schedule.schedules import SqliteSchedules

SCHEME: Final = "sqlite:///"


class SqliteStore:
    """A store in one file, which may also be the broker's; made and upgraded when it is first used."""

    def __init__(self, path: str | Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.file = SqliteFile(Path(path).absolute(), shown=f"{SCHEME}{path}", busy_seconds=busy_seconds)
        self.migrations = SqliteMigrations(self.file)
        self.messages = SqliteMessages(self.file, SqliteRecording(self.file))
        self.ledger = SqliteLedger(self.file)
        self.outbox = SqliteOutbox(self.file)
        self.journal = SqliteJournal(self.file)
        self.pipelines = SqlitePipelines(self.file)
        self.schedules = SqliteSchedules(self.file)
        self.plans = SqlitePlans(self.file)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return a store on `sqlite:///relative.db` or `sqlite:////absolute/path.db`."""
        return cls(sqlite_file(url))

    @property
    def url(self) -> str:
        return self.file.shown

    async def ping(self) -> None:
        await self.file.read("a ping", lambda connection: connection.execute("SELECT 1").fetchone())

    async def close(self) -> None:
        await self.file.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
