"""Writing batches of the journal into the tables of a SQLite file, with the position, in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

from godwit.core.fault_points import fault_point
from godwit.core.journal.changes import Batch, Removal
from godwit.core.journal.shards import Position
from godwit.core.journal.statuses import Status
from godwit.core.journal.vocabulary import Event
from godwit.core.names import new_message_id
from godwit.store.bodies import json_text, spec_facts
from godwit.store.sqlite.file import SqliteFile, sql
from godwit.store.sqlite.many_rows import insert
from godwit.store.state_rows import copy_record, message_record

_WAITING: Final = ("incoming_deliveries", "ended_messages", "touched_messages")


class SqliteRecording:
    """The recorder's side of the state tables."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def positions(self) -> Mapping[str, Position]:
        def look(connection: sqlite3.Connection) -> dict[str, Position]:
            rows = connection.execute(sql("messages/positions"))
            return {row["shard"]: Position(row["epoch"], row["seq"]) for row in rows}

        return await self._file.read("reading the recorder's position", look)

    async def last_row_times(self) -> Mapping[str, int]:
        def look(connection: sqlite3.Connection) -> dict[str, int]:
            return {row["shard"]: row["at"] for row in connection.execute(sql("messages/positions"))}

        return await self._file.read("reading the recorder's position", look)

    async def record(self, batch: Batch) -> bool:
        def write(connection: sqlite3.Connection) -> None:
            _advance(connection, batch)
            fault_point("recorder.positioned")
            SqliteBatchWrite(connection, batch).carry_out()
            fault_point("recorder.before_commit")

        try:
            # Not durable: after a power cut position and tables are older, but together, and the journal is read again.
            await self._file.write("recording", write, durable=False)
        except _Overtaken:
            return False
        fault_point("recorder.committed")
        return True


class _Overtaken(Exception):
    """Another recorder has been here; the transaction is rolled back."""


def _advance(connection: sqlite3.Connection, batch: Batch) -> None:
    for step in batch.steps.values():
        after = (step.after.epoch, step.after.seq, step.at, step.lost)
        if step.before is None:
            done = connection.execute(sql("messages/begin"), (step.shard, *after))
        else:
            before = (step.shard, step.before.epoch, step.before.seq)
            done = connection.execute(sql("messages/advance"), (*after, *before))
        if done.rowcount != 1:
            raise _Overtaken


class SqliteBatchWrite:
    """A batch on its way into the tables; the order of the parts matters.

    Every part is a few statements, however many rows: the file stays locked only as long as SQLite works.
    """

    def __init__(self, connection: sqlite3.Connection, batch: Batch) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._batch = batch

    def carry_out(self) -> None:
        """Queues and groups, then copies, then their messages, then what depends on both; the removal last."""
        self._queues()
        self._begin()
        self._copies()
        fault_point("recorder.changed")
        self._messages()
        self._letters()
        self._instances()
        if self._batch.removal is not None:
            self._remove(self._batch.removal)

    def _begin(self) -> None:
        """Make the tables of this connection where changes wait; empty them."""
        for name in _WAITING:
            self._execute(sql(f"messages/{name}"))
            self._execute(f"DELETE FROM temp.{name}")  # noqa: S608 (a name of ours)

    def _copies(self) -> None:
        born, ended, changed = [], [], []
        for copy in self._batch.copies.values():
            record = copy_record(copy, copy.worker)
            if not copy.born:
                changed.append((*record, copy.finished_at, copy.superseded))
            elif copy.finished_at is None:
                born.append(record)
            else:
                ended.append((*record, copy.processed_at, copy.finished_at))
        if changed:
            insert(self._connection, "messages/take_change", changed)
            self._end()
            self._execute(sql("messages/change_deliveries"))
        insert(self._connection, "messages/add_delivery", born)
        insert(self._connection, "messages/add_finished_delivery", ended)

    def _end(self) -> None:
        """Move the copies that ended to history."""
        self._execute(sql("messages/note_ends"))
        self._execute(sql("messages/end_deliveries"))
        self._execute(sql("messages/delete_deliveries"))

    def _messages(self) -> None:
        finished, arrived, touched = [], [], []
        for message in self._batch.messages():
            if message.arrival is not None:
                record = message_record(message)
                if message.finished:
                    done = message.updated_at if message.ended_as is Status.COMPLETED else None
                    finished.append((*record, message.ended_as, done, message.updated_at))
                else:
                    # Ids that grow: at random, each would change another page of their index.
                    arrived.append((new_message_id(), *record, message.status or Status.PENDING, message.ended_as))
            if message.settled_by_tables:
                touched.append((message.message_id, message.updated_at))
        insert(self._connection, "messages/add_finished_message", finished)
        insert(self._connection, "messages/add_message", arrived)
        if touched:
            insert(self._connection, "messages/touch", touched)
            self._settle()

    def _settle(self) -> None:
        """Bring messages in line with what is left of their copies."""
        self._execute(sql("messages/finish_messages"))
        self._execute(sql("messages/delete_messages"))
        self._execute(sql("messages/change_messages"))

    def _letters(self) -> None:
        for address, letter in self._batch.letters.items():
            if letter is None:
                self._execute(sql("messages/remove_letter"), address)
            else:
                self._execute(
                    sql("messages/add_letter"),
                    (*address, letter.message_id, letter.type, letter.kind, letter.fingerprint, letter.attempt,
                     letter.failures, letter.crashes, letter.worker, letter.dead_at),
                )  # fmt: skip

    def _queues(self) -> None:
        for name, (spec, at) in self._batch.queues.items():
            facts = spec_facts(spec)
            self._execute(sql("messages/add_queue"), (name, facts.type, facts.priority, json_text(spec), at, at))
        for (queue, group), (spec, at) in self._batch.groups.items():
            self._execute(sql("messages/add_group"), (group, queue, json_text(spec), at, at))

    def _instances(self) -> None:
        for (queue, group, worker), work in self._batch.instances.items():
            self._execute(sql("messages/know_group"), (group, queue))
            self._execute(
                sql("messages/add_work"),
                {
                    "queue": queue,
                    "group": group,
                    "instance": worker,
                    "processed": work.processed,
                    "errors": work.errors,
                    "run_ms": work.run_ms,
                    "last_at": work.last_at,
                },
            )

    def _remove(self, removal: Removal) -> None:
        place = {
            "queue": removal.queue,
            "group": removal.group,
            "dead_too": removal.dead_too,
            "first": removal.numbers[0],
            "last": removal.numbers[-1],
        }
        self._begin()
        self._execute(sql("messages/removed_deliveries"), {**place, "at": removal.at})
        self._execute(sql("messages/touch_changed"))
        self._end()
        self._settle()
        if removal.dead_too:
            self._execute(sql("messages/removed_letters"), place)
        if removal.dead_too and removal.of_first:
            self._execute(sql("messages/remove_groups"), place)
        if removal.event is Event.QUEUE_REMOVED and removal.of_first:
            self._execute(sql("messages/remove_queue"), (removal.queue,))
