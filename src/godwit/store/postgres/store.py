"""The PostgreSQL store: its parts put together."""

from __future__ import annotations

from typing import Self

from godwit.config.addresses import without_password
from godwit.store.postgres.database import POOL_SIZE, PostgresDatabase
from godwit.store.postgres.journal import PostgresJournal
from godwit.store.postgres.ledger import PostgresLedger
from godwit.store.postgres.messages import PostgresMessages
from godwit.store.postgres.migrate import PostgresMigrations
from godwit.store.postgres.outbox import PostgresOutbox
from godwit.store.postgres.pipeline import PostgresPipelines
from godwit.store.postgres.record import SETTINGS, PostgresRecording, prepare
from godwit.store.postgres.schedule.plans import PostgresPlans
from godwit.store.postgres.schedule.schedules import PostgresSchedules


class PostgresStore:
    """A store in one database. Its schema is upgraded on request (`godwit db upgrade`), never by itself."""

    def __init__(self, url: str, *, pool_size: int = POOL_SIZE) -> None:
        self.database = PostgresDatabase(url, shown=without_password(url), pool_size=pool_size)
        self.migrations = PostgresMigrations(self.database)
        # One connection of its own: it keeps temporary tables, and times travel differently on it.
        self._recording = PostgresDatabase(
            url,
            shown=without_password(url),
            pool_size=1,
            prepare=prepare,
            settings=SETTINGS,
            schema=self.database.schema,
        )
        self.messages = PostgresMessages(self.database, PostgresRecording(self._recording))
        self.ledger = PostgresLedger(self.database)
        self.outbox = PostgresOutbox(self.database)
        self.journal = PostgresJournal(self.database)
        self.pipelines = PostgresPipelines(self.database)
        self.schedules = PostgresSchedules(self.database)
        self.plans = PostgresPlans(self.database)

    @property
    def url(self) -> str:
        return self.database.shown

    async def ping(self) -> None:
        async with self.database.connection("a ping") as connection:
            await connection.execute("SELECT 1")

    async def close(self) -> None:
        await self._recording.close()
        await self.database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
