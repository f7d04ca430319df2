"""Writing batches of the journal into the tables of a SQLite file, with the position, in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Final

from godwit.core.faults import reach
from godwit.core.journal import Event, Position
from godwit.core.recording import Batch, CopyChange, MessageChange, Removal
from godwit.core.statuses import DEAD, Status, least_finished
from godwit.store.bodies import facts_of, json_text, spec_facts
from godwit.store.sqlite.file import SqliteFile, sql

_FACTS: Final = (
    "queue_name", "consumer_group", "publish_seq", "message_id", "status", "retry_count", "attempt", "failures",
    "crashes", "worker", "delivery_id", "ready_at", "delivered_at", "lease_until", "run_ms", "error_kind",
    "error_fingerprint", "result", "updated_at",
)  # fmt: skip


class SqliteRecording:
    """The recorder's side of the state tables."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def positions(self) -> Mapping[str, Position]:
        def look(connection: sqlite3.Connection) -> dict[str, Position]:
            rows = connection.execute(sql("messages/positions"))
            return {row["shard"]: Position(row["epoch"], row["seq"]) for row in rows}

        return await self._file.read("reading the recorder's position", look)

    async def record(self, batch: Batch) -> bool:
        def write(connection: sqlite3.Connection) -> None:
            _advance(connection, batch)
            reach("recorder.positioned")
            Writing(connection, batch).carry_out()
            reach("recorder.before_commit")

        try:
            # Not durable: after a power cut position and tables are older, but together, and the journal is read again.
            await self._file.write("recording", write, durable=False)
        except _Overtaken:
            return False
        reach("recorder.committed")
        return True


class _Overtaken(Exception):
    """Another recorder has been here; the transaction is rolled back."""


def _advance(connection: sqlite3.Connection, batch: Batch) -> None:
    for step in batch.steps.values():
        after = (step.after.epoch, step.after.seq, step.at)
        if step.before is None:
            done = connection.execute(sql("messages/begin"), (step.shard, *after))
        else:
            before = (step.shard, step.before.epoch, step.before.seq)
            done = connection.execute(sql("messages/advance"), (*after, *before))
        if done.rowcount != 1:
            raise _Overtaken


class Writing:
    """One batch on its way into the tables; the order of the parts matters."""

    def __init__(self, connection: sqlite3.Connection, batch: Batch) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._batch = batch
        self._ended: dict[str, tuple[Status | None, int, int | None]] = {}
        """By message: how the worst of its copies that ended now ended, their retries, when one was done."""

    def carry_out(self) -> None:
        """Queues and groups, then copies, then their messages, then what depends on both; the removal last."""
        self._queues()
        self._copies()
        reach("recorder.changed")
        self._messages()
        self._letters()
        self._instances()
        if self._batch.removal is not None:
            self._remove(self._batch.removal)

    def _copies(self) -> None:
        born, ended = [], []
        for copy in self._batch.copies.values():
            record = _record(copy)
            if not copy.born:
                self._change(copy, dict(zip(_FACTS, record, strict=True)))
            elif copy.finished_at is None:
                born.append(record)
            else:
                ended.append((*record, copy.processed_at, copy.finished_at))
        self._connection.executemany(sql("messages/add_delivery"), born)
        self._connection.executemany(sql("messages/add_finished_delivery"), ended)

    def _change(self, copy: CopyChange, facts: dict[str, Any]) -> None:
        if copy.finished_at is None:
            self._execute(sql("messages/change_delivery"), facts)
            return
        facts["finished_at"] = copy.finished_at
        self._execute(sql("messages/end_delivery"), facts)
        for row in self._execute(sql("messages/delete_delivery"), facts).fetchall():
            if not copy.superseded:
                status = copy.status or Status(row["status"])
                retries = row["retry_count"] if copy.retry_count is None else copy.retry_count
                self._note_end(copy.message_id, status, retries, copy.processed_at)

    def _note_end(self, message_id: str, status: Status, retries: int, processed_at: int | None) -> None:
        before, most, done = self._ended.get(message_id, (None, 0, None))
        worst = status if before is None else least_finished((before, status))
        self._ended[message_id] = (worst, max(most, retries), processed_at or done)

    def _messages(self) -> None:
        finished, arrived, touched = [], [], []
        for message in self._batch.messages():
            if message.arrival is not None:
                record = _message_record(message)
                if message.finished:
                    done = message.updated_at if message.ended_as is Status.COMPLETED else None
                    finished.append((*record, message.ended_as, done, message.updated_at))
                    continue
                arrived.append((*record, message.status or Status.PENDING, message.ended_as))
            touched.append((message.message_id, message.updated_at))
        self._connection.executemany(sql("messages/add_finished_message"), finished)
        self._connection.executemany(sql("messages/add_message"), arrived)
        self._settle(touched)

    def _settle(self, touched: list[tuple[str, int]]) -> None:
        """Bring messages in line with what is left of their copies."""
        for message_id, at in touched:
            ended, retries, processed_at = self._ended.get(message_id, (None, 0, None))
            before = self._execute("SELECT ended_as FROM queue_messages WHERE message_id = ?", (message_id,)).fetchone()
            if before is None:
                continue
            ends = [status for status in (ended, before["ended_as"] and Status(before["ended_as"])) if status]
            facts = {
                "message_id": message_id,
                "ended_as": least_finished(ends) if ends else None,
                "retry_count": retries,
                "processed_at": processed_at,
                "finished_at": at,
                "updated_at": at,
            }
            copies = self._execute(sql("messages/open_copies"), (message_id,)).fetchall()
            if copies:
                facts["status"] = least_finished(Status(copy["status"]) for copy in copies)
                facts["retry_count"] = max(retries, *(copy["retry_count"] for copy in copies))
                self._execute(sql("messages/change_message"), facts)
            else:
                facts["status"] = facts["ended_as"]
                self._execute(sql("messages/finish_message"), facts)
                self._execute(sql("messages/delete_message"), (message_id,))

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
            self._execute(sql("messages/add_queue"), (name, facts.type, facts.priority, spec.decode(), at, at))
        for (queue, group), (spec, at) in self._batch.groups.items():
            self._execute(sql("messages/add_group"), (group, queue, spec.decode(), at, at))

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
        self._ended.clear()
        rows = self._execute(sql("messages/removed_deliveries"), place).fetchall()
        for row in rows:
            copy = CopyChange(row["queue_name"], row["consumer_group"], row["publish_seq"], row["message_id"])
            copy.status = Status(row["status"]) if row["status"] in DEAD else Status.CANCELLED
            copy.finished_at = copy.updated_at = removal.at
            self._change(copy, dict(zip(_FACTS, _record(copy), strict=True)))
        self._settle([(row["message_id"], removal.at) for row in rows])
        if removal.dead_too:
            self._execute(sql("messages/removed_letters"), place)
        if removal.dead_too and removal.of_first:
            self._execute(sql("messages/remove_groups"), place)
        if removal.event is Event.QUEUE_REMOVED and removal.of_first:
            self._execute(sql("messages/remove_queue"), (removal.queue,))


def _record(copy: CopyChange) -> tuple[Any, ...]:
    return (
        copy.queue,
        copy.group,
        copy.publish_seq,
        copy.message_id,
        copy.status,
        copy.retry_count,
        copy.attempt,
        copy.failures,
        copy.crashes,
        copy.worker,
        copy.delivery_id,
        copy.ready_at,
        copy.delivered_at,
        copy.lease_until,
        copy.run_ms,
        copy.error_kind,
        copy.error_fingerprint,
        json_text(copy.result),
        copy.updated_at,
    )


def _message_record(message: MessageChange) -> tuple[Any, ...]:
    arrival = message.arrival
    assert arrival is not None  # noqa: S101 (the caller looked)
    facts = facts_of(arrival.body)
    return (
        arrival.queue,
        message.message_id,
        arrival.type,
        arrival.priority,
        facts.payload,
        facts.metadata,
        message.retry_count,
        facts.max_retries,
        arrival.scheduled_at,
        arrival.expires_at,
        facts.created_at_ms or arrival.at,
        message.updated_at,
    )
