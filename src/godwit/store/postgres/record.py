"""Writing batches of the journal into the tables of PostgreSQL: by COPY, with the position, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import asyncpg

from godwit.core.error_text import error_text
from godwit.core.errors import StoreRefused
from godwit.core.fault_points import fault_point
from godwit.core.journal.changes import Batch, Removal
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import Event
from godwit.store.bodies import json_text, spec_facts, without_nul
from godwit.store.postgres.database import PostgresDatabase, sql
from godwit.store.postgres.day_partitions import DayPartitions
from godwit.store.state_rows import copy_record, message_record

_Y2K_US: Final = 946_684_800_000_000
_DATA_ERRORS: Final = "22"
_CHANGED: Final = (
    "queue_name", "consumer_group", "publish_seq", "message_id", "status", "retry_count", "attempt", "failures",
    "crashes", "worker", "delivery_id", "ready_at", "delivered_at", "lease_until", "run_ms", "error_kind",
    "error_fingerprint", "result", "updated_at",
)  # fmt: skip
_MESSAGE: Final = (
    "queue_name", "message_id", "type", "priority", "payload", "metadata", "retry_count", "max_retries",
    "scheduled_at", "expires_at", "created_at", "updated_at", "status",
)  # fmt: skip
_LETTER: Final = (
    "queue_name", "consumer_group", "publish_seq", "message_id", "type", "kind", "error_fingerprint", "attempt",
    "failures", "crashes", "worker", "dead_at",
)  # fmt: skip
NAME_LENGTH: Final = 255
SETTINGS: Final = {"enable_hashjoin": "off", "enable_mergejoin": "off"}
"""A batch is small and the tables may be large: rows are found by index, whatever stale statistics say."""


async def prepare(connection: asyncpg.Connection) -> None:
    """Make a connection the recorder's: with its temporary tables, and times that travel as whole milliseconds.

    A datetime costs ten times as much.
    """
    await connection.execute(sql("messages/incoming_deliveries"))
    await connection.execute(sql("messages/incoming_messages"))
    await connection.set_type_codec(
        "timestamptz",
        schema="pg_catalog",
        format="tuple",
        encoder=lambda ms: (ms * 1000 - _Y2K_US,),
        decoder=lambda parts: (parts[0] + _Y2K_US) // 1000,
    )


class PostgresRecording:
    """The recorder's side of the state tables, on one connection of its own."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._days = DayPartitions("queue_messages_history", "queue_deliveries_history")

    async def positions(self) -> Mapping[str, Position]:
        rows = await self._database.fetch("reading the recorder's position", "messages/positions")
        return {row["shard"]: Position(row["epoch"], row["seq"]) for row in rows}

    async def last_row_times(self) -> Mapping[str, int]:
        rows = await self._database.fetch("reading the recorder's position", "messages/positions")
        return {row["shard"]: row["at"] for row in rows}

    async def record(self, batch: Batch) -> bool:
        try:
            return await self._record(batch, careful=False)
        except _Refused:
            # A payload holds what JSON allows and PostgreSQL refuses; one message must not stop the recorder.
            return await self._record(batch, careful=True)

    async def _record(self, batch: Batch, *, careful: bool) -> bool:
        async with self._database.connection("recording") as connection:
            await self._days.ensure(connection, _ends(batch))
            try:
                async with connection.transaction():
                    await _advance(connection, batch)
                    fault_point("recorder.positioned")
                    await PostgresBatchWrite(connection, batch, careful=careful).carry_out()
                    fault_point("recorder.before_commit")
            except _Overtaken:
                return False
            except (asyncpg.PostgresError, ValueError, OverflowError) as error:
                refused = getattr(error, "sqlstate", _DATA_ERRORS) or ""
                if not refused.startswith(_DATA_ERRORS):
                    raise
                if not careful:
                    raise _Refused from error
                if isinstance(error, asyncpg.PostgresError):
                    raise
                raise StoreRefused("recording", error_text(error)) from error
        fault_point("recorder.committed")
        return True


class _Overtaken(Exception):
    """Another recorder has been here; the transaction is rolled back."""


class _Refused(Exception):
    """The database does not take a value."""


def _ends(batch: Batch) -> set[int]:
    ends = {copy.finished_at for copy in batch.copies.values() if copy.finished_at is not None}
    return ends | {copy.updated_at for copy in batch.copies.values()} | ({batch.removal.at} if batch.removal else set())


async def _advance(connection: asyncpg.Connection, batch: Batch) -> None:
    """Move the positions first: two recorders at once wait for each other here, and the second sees it is late."""
    for step in batch.steps.values():
        after = (step.after.epoch, step.after.seq, step.at, step.lost)
        if step.before is None:
            done = await connection.fetchrow(sql("messages/begin"), step.shard, *after)
        else:
            before = (step.before.epoch, step.before.seq)
            done = await connection.fetchrow(sql("messages/advance"), step.shard, *before, *after)
        if done is None:
            raise _Overtaken


class PostgresBatchWrite:
    """A batch on its way into the tables; the order of the parts matters."""

    def __init__(self, connection: asyncpg.Connection, batch: Batch, *, careful: bool) -> None:
        self._connection = connection
        self._batch = batch
        self._careful = careful

    async def carry_out(self) -> None:
        """Queues and groups, then copies, then their messages, then what depends on both; the removal last."""
        await self._queues()
        await self._copies()
        await self._messages()
        await self._letters()
        await self._instances()
        if self._batch.removal is not None:
            await self._remove(self._batch.removal)

    async def _copy(self, table: str, columns: Iterable[str], records: list[tuple[Any, ...]]) -> None:
        if records:
            if self._careful:
                records = [tuple(map(without_nul, record)) for record in records]
            await self._connection.copy_records_to_table(table, records=records, columns=list(columns))

    async def _copies(self) -> None:
        born, ended, changed = [], [], []
        for copy in self._batch.copies.values():
            record = copy_record(copy, _name(copy.worker), careful=self._careful)
            if not copy.born:
                changed.append((*record, copy.finished_at, copy.superseded))
            elif copy.finished_at is None:
                born.append(record)
            else:
                ended.append((*record, copy.processed_at, copy.finished_at))
        await self._copy("incoming_deliveries", (*_CHANGED, "finished_at", "superseded"), changed)
        if changed:
            await self._connection.execute(sql("messages/end_deliveries"))
            await self._connection.execute(sql("messages/change_deliveries"))
        fault_point("recorder.changed")
        await self._copy("queue_deliveries", _CHANGED, born)
        await self._copy("queue_deliveries_history", (*_CHANGED, "processed_at", "finished_at"), ended)

    async def _messages(self) -> None:
        finished, arrived, touched = [], [], []
        for message in self._batch.messages():
            if message.arrival is not None:
                record = message_record(message, careful=self._careful)
                if message.finished:
                    done = message.updated_at if message.ended_as == "completed" else None
                    finished.append((*record, message.ended_as, done, message.updated_at))
                else:
                    arrived.append((*record, message.status or "pending", message.ended_as))
            if message.settled_by_tables:
                touched.append((message.message_id, message.updated_at))
        await self._copy("queue_messages_history", (*_MESSAGE, "processed_at", "finished_at"), finished)
        await self._copy("incoming_messages", (*_MESSAGE, "ended_as"), arrived)
        if arrived:
            await self._connection.execute(sql("messages/add_messages"))
        if touched:
            await self._settle(touched)

    async def _settle(self, touched: list[tuple[str, int]]) -> None:
        """Bring messages in line with what is left of their copies."""
        ids, times = zip(*touched, strict=True)
        await self._connection.execute(sql("messages/finish_messages"), ids, times)
        await self._connection.execute(sql("messages/change_messages"), ids)

    async def _letters(self) -> None:
        letters = self._batch.letters
        if not letters:
            return
        await self._connection.execute(sql("messages/remove_letters"), *zip(*letters, strict=True))
        records = [
            (*address, one.message_id, one.type, one.kind, one.fingerprint, one.attempt, one.failures, one.crashes,
             _name(one.worker), one.dead_at)
            for address, one in letters.items()
            if one is not None
        ]  # fmt: skip
        await self._copy("dead_letters", _LETTER, records)

    async def _queues(self) -> None:
        for name, (spec, at) in self._batch.queues.items():
            facts = spec_facts(spec)
            await self._connection.execute(
                sql("messages/add_queue"), name, facts.type, facts.priority, json_text(spec), at
            )
        for (queue, group), (spec, at) in self._batch.groups.items():
            await self._connection.execute(sql("messages/add_group"), group, queue, json_text(spec), at)

    async def _instances(self) -> None:
        instances = self._batch.instances
        if instances:
            rows = [
                (queue, group, _name(worker), work.processed, work.errors, work.run_ms, work.last_at)
                for (queue, group, worker), work in sorted(instances.items())
            ]
            await self._connection.execute(sql("messages/add_work"), *zip(*rows, strict=True))

    async def _remove(self, removal: Removal) -> None:
        first, last = removal.numbers[0], removal.numbers[-1]
        rows = await self._connection.fetch(
            sql("messages/removed_deliveries"), removal.queue, removal.group, removal.dead_too, removal.at, first, last
        )
        if rows:
            await self._settle([(row["message_id"], removal.at) for row in rows])
        if removal.dead_too:
            await self._connection.execute(sql("messages/removed_letters"), removal.queue, removal.group, first, last)
        if removal.dead_too and removal.of_first:
            await self._connection.execute(sql("messages/remove_groups"), removal.queue, removal.group)
        if removal.event is Event.QUEUE_REMOVED and removal.of_first:
            await self._connection.execute(sql("messages/remove_queue"), removal.queue)


def _name(text: str | None) -> str | None:
    """Return a worker's name as the tables take it."""
    return text if text is None else text[:NAME_LENGTH].replace("\0", "")
