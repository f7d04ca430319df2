"""Messages in PostgreSQL: where each stands, and how long finished ones are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from godwit.core.clock import from_ms
from godwit.core.journal.changes import Address, Batch, Census
from godwit.core.journal.shards import Position
from godwit.core.journal.statuses import MessageStatus
from godwit.store.journal_tail import laid_over
from godwit.store.postgres.database import PostgresDatabase, sql
from godwit.store.postgres.day_partitions import DayPartitions
from godwit.store.postgres.record import NAME_LENGTH, PostgresRecording
from godwit.store.status import message_status

_HISTORY: Final = ("queue_messages_history", "queue_deliveries_history", "schedule_firings_history")
_MINUTES: Final = ("queue_analytics_minute", "queue_analytics_histogram")


class PostgresMessages:
    """The projection of the journal: written by the recorder, read by all other parts."""

    batch_rows = 10_000

    def __init__(self, database: PostgresDatabase, recording: PostgresRecording) -> None:
        self._database = database
        self._recording = recording

    async def positions(self) -> Mapping[str, Position]:
        return await self._recording.positions()

    async def last_row_times(self) -> Mapping[str, int]:
        return await self._recording.last_row_times()

    async def record(self, batch: Batch) -> bool:
        return await self._recording.record(batch)

    async def open_copies(self, queue: str) -> list[tuple[Address, str]]:
        rows = await self._database.fetch("listing copies", "messages/copies_of_queue", queue)
        return [((row[0], row[1], row[2]), row[3]) for row in rows]

    async def status(self, message_id: str, ahead: Sequence[Batch] = ()) -> MessageStatus | None:
        async with self._database.transaction("looking up a message") as connection:
            # One snapshot: the recorder may move the message to history between two looks.
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            row = await connection.fetchrow(sql("messages/open_message"), message_id)
            row = row or await connection.fetchrow(sql("messages/finished_message"), message_id)
            copies = await connection.fetch(sql("messages/deliveries"), message_id)
            copies += await connection.fetch(sql("messages/finished_deliveries"), message_id)
        return message_status(*laid_over(message_id, row, copies, ahead), datetime.now(UTC))

    async def note(self, census: Census) -> None:
        members = [
            (member.queue, member.group, member.name[:NAME_LENGTH], member.status, from_ms(member.last_heartbeat))
            for member in census.members
        ]
        async with self._database.transaction("noting the census") as connection:
            await connection.executemany(sql("messages/queue_status"), sorted(census.queues.items()))
            groups = [(queue, group, status) for (queue, group), status in sorted(census.groups.items())]
            await connection.executemany(sql("messages/group_status"), groups)
            await connection.executemany(sql("messages/member_status"), sorted(members))

    async def retain(self, keep: timedelta) -> int:
        day = (datetime.now(UTC) - keep).date()
        async with self._database.connection("dropping old history") as connection:
            await connection.execute("SET lock_timeout = '5s'")  # a statement behind a DROP waits as long as it does
            return len(await DayPartitions(*_HISTORY, *_MINUTES).drop_before(connection, day))
