"""Messages in a SQLite file: where each stands, and how long finished ones are kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from godwit.core.clock import from_ms, to_ms
from godwit.core.journal.changes import Address, Batch, Census
from godwit.core.journal.shards import Position
from godwit.core.journal.statuses import MessageStatus
from godwit.store.journal_tail import laid_over
from godwit.store.sqlite.file import SqliteFile, sql
from godwit.store.sqlite.record import SqliteRecording
from godwit.store.status import message_status

_TIMES: Final = frozenset({
    "scheduled_at", "processed_at", "expires_at", "created_at", "updated_at", "ready_at", "delivered_at",
    "lease_until", "finished_at",
})  # fmt: skip
_HISTORY: Final = {
    "queue_messages_history": "finished_at",
    "queue_deliveries_history": "finished_at",
    "schedule_firings_history": "finished_at",
    "queue_analytics_minute": "minute",
    "queue_analytics_histogram": "minute",
}
_DROPPED_AT_ONCE: Final = 2_000
"""Rows dropped in one transaction: a broker in the same file must not wait long for its turn."""


class SqliteMessages:
    """The projection of the journal: written by the recorder, read by all other parts."""

    batch_rows = 400
    """Few: a broker in the same file must not wait long for its turn, and a worker that records shall stay small."""

    def __init__(self, file: SqliteFile, recording: SqliteRecording) -> None:
        self._file = file
        self._recording = recording

    async def positions(self) -> Mapping[str, Position]:
        return await self._recording.positions()

    async def last_row_times(self) -> Mapping[str, int]:
        return await self._recording.last_row_times()

    async def record(self, batch: Batch) -> bool:
        return await self._recording.record(batch)

    async def open_copies(self, queue: str) -> list[tuple[Address, str]]:
        def look(connection: sqlite3.Connection) -> list[tuple[Address, str]]:
            rows = connection.execute(sql("messages/copies_of_queue"), (queue,))
            return [((row[0], row[1], row[2]), row[3]) for row in rows]

        return await self._file.read("listing copies", look)

    async def status(self, message_id: str, ahead: Sequence[Batch] = ()) -> MessageStatus | None:
        def look(connection: sqlite3.Connection) -> MessageStatus | None:
            row = connection.execute(sql("messages/open_message"), (message_id,)).fetchone()
            row = row or connection.execute(sql("messages/finished_message"), (message_id,)).fetchone()
            copies = connection.execute(sql("messages/deliveries"), (message_id,)).fetchall()
            copies += connection.execute(sql("messages/finished_deliveries"), (message_id,)).fetchall()
            found = None if row is None else _row(row)
            return message_status(*laid_over(message_id, found, map(_row, copies), ahead), datetime.now(UTC))

        return await self._file.read("looking up a message", look)

    async def note(self, census: Census) -> None:
        queues = [(status, queue, status) for queue, status in census.queues.items()]
        groups = [(status, queue, group, status) for (queue, group), status in census.groups.items()]
        members = [
            (member.name, member.status, member.last_heartbeat, member.queue, member.group) for member in census.members
        ]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(sql("messages/queue_status"), queues)
            connection.executemany(sql("messages/group_status"), groups)
            connection.executemany(sql("messages/member_status"), members)

        await self._file.write("noting the census", write, durable=False)

    async def retain(self, keep: timedelta) -> int:
        """Delete in small steps, oldest rows first; the pages are used again, so the file does not grow."""
        day = (datetime.now(UTC) - keep).replace(hour=0, minute=0, second=0, microsecond=0)
        gone = 0
        for table, column in _HISTORY.items():
            query = (
                f"DELETE FROM {table} WHERE {column} < ? AND rowid IN "  # noqa: S608 (names of ours)
                f"(SELECT rowid FROM {table} ORDER BY rowid LIMIT ?)"
            )
            dropped = _DROPPED_AT_ONCE
            while dropped == _DROPPED_AT_ONCE:
                dropped = await self._file.write(
                    "dropping old history",
                    lambda connection, query=query: (
                        connection.execute(  # type: ignore[misc]
                            query, (to_ms(day), _DROPPED_AT_ONCE)
                        ).rowcount
                    ),
                    durable=False,
                )
                gone += dropped
        return gone


def _row(row: sqlite3.Row) -> dict[str, Any]:
    return {
        key: from_ms(row[key]) if key in _TIMES and row[key] is not None else row[key]
        for key in row.keys()  # noqa: SIM118
    }
