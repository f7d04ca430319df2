"""A step on one transaction: the queues and groups it touches, the journal chunks it makes, whom it wakes."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from godwit.brokers.sqlite.layout.rows import (
    PART_BITS,
    SELECT_GROUPS,
    SELECT_QUEUES,
    TURN_BITS,
    UPDATE_GROUP,
    UPDATE_SHARD,
    GroupRow,
    QueueRow,
)
from godwit.brokers.sqlite.layout.runs import Runs
from godwit.core.clock import Clock
from godwit.core.errors import GroupNotFound, QueueNotFound
from godwit.core.journal.chunks import encode_chunk
from godwit.core.journal.queue_time import ClockLag, behind
from godwit.core.journal.vocabulary import VERSIONED, Event, Row
from godwit.core.names import GroupName, is_name

_encode = msgspec.msgpack.Encoder().encode
SHARD_BITS = TURN_BITS + PART_BITS
INSERT_CHUNK = "INSERT INTO broker_journal VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


class KnownQueues:
    """Queues and groups as they are in the file: what one step loaded and saved, for the next one to go on with."""

    __slots__ = ("groups", "queues")

    def __init__(self) -> None:
        self.queues: dict[str, QueueRow] = {}
        self.groups: dict[int, dict[GroupName, GroupRow]] = {}


class SqliteStep:
    """What a step has loaded and changed; `save` writes it back."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        runs: Runs,
        clock: Clock,
        floors: dict[int, int],
        known: KnownQueues | None = None,
    ) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.runs = runs
        self.clock = clock
        self.ready: set[str] = set()
        """Queues where something became deliverable."""
        self.ended: Counter[int] = Counter()
        """Copies that came to their end, by run."""
        self.known = known or KnownQueues()
        self._queues, self._groups = self.known.queues, self.known.groups
        self._floors = floors
        self._journaled: set[int] = set()
        self._chunks: list[tuple[Any, ...]] = []
        self.actor: str | None = None
        """Who asked for this step."""
        self.app_version: str | None = None
        """Of the application that publishes or pulls in it."""

    # Finding things

    def find_queue(self, name: str) -> QueueRow | None:
        """Return a queue, or None."""
        queue = self._queues.get(name)
        if queue is None and is_name(name):
            row = self.execute(f"{SELECT_QUEUES} WHERE q.name = ?", (name,)).fetchone()
            if row is not None:
                queue = self._queues[name] = QueueRow(row)
        return queue

    def queue(self, name: str) -> QueueRow:
        """Return a queue that must exist."""
        queue = self.find_queue(name)
        if queue is None:
            raise QueueNotFound(name, self.queue_names())
        return queue

    def queue_names(self) -> tuple[str, ...]:
        """Return the names of all queues, oldest first."""
        return tuple(name for (name,) in self.execute("SELECT name FROM broker_queues ORDER BY id"))

    def queues(self) -> list[QueueRow]:
        """Return all queues, oldest first."""
        return [self.queue(name) for name in self.queue_names()]

    def groups(self, queue: QueueRow) -> dict[GroupName, GroupRow]:
        """Return the groups of a queue, oldest first."""
        groups = self._groups.get(queue.id)
        if groups is None:
            rows = self.execute(f"{SELECT_GROUPS} WHERE queue_id = ? ORDER BY id", (queue.id,)).fetchall()
            groups = self._groups[queue.id] = {GroupName(row[2]): GroupRow(queue, row) for row in rows}
        return groups

    def group(self, queue: QueueRow, name: GroupName) -> GroupRow:
        """Return a group that must exist."""
        group = self.groups(queue).get(name)
        if group is None:
            raise GroupNotFound(queue.name, name, tuple(self.groups(queue)))
        return group

    def addressed(self, opaque_id: str) -> tuple[GroupRow | None, str]:
        """Return the group an ack id or letter id belongs to, and the rest of it."""
        if not opaque_id.isascii():
            return None, ""  # all of ours are
        name, _, rest = opaque_id.partition("#")
        _, _, rest = rest.partition("#")
        group, _, rest = rest.partition("#")
        queue = self.find_queue(name)
        return (self.groups(queue).get(GroupName(group)) if queue is not None else None), rest

    def drop_group(self, group: GroupRow) -> None:
        """Forget a group that was removed."""
        del self._groups[group.queue.id][group.name]

    def reload(self, queue: QueueRow) -> None:
        """Load a queue's groups again: their rows were changed by hand."""
        self._groups.pop(queue.id, None)

    def drop_queue(self, queue: QueueRow) -> None:
        """Write a removed queue's shard and forget the queue."""
        self.execute(UPDATE_SHARD, queue.shard_values)
        del self._queues[queue.name]
        self._groups.pop(queue.id, None)

    # Time

    def now(self, queue: QueueRow) -> int:
        """Return the time of this step on this queue; it never goes back, whatever the clock does."""
        # The floor remembers steps that wrote nothing, of this process.
        queue.at = max(queue.at, self._floors.get(queue.shard_id, 0))
        clock_ms = self.clock.now_ms()
        if clock_ms >= queue.at:
            queue.at = clock_ms
        else:
            lag = self.lag(queue)
            queue.at, counts = behind(queue.at, clock_ms, lag)
            if counts != lag:
                self.execute("INSERT OR REPLACE INTO broker_lags VALUES (?, ?, ?)", (queue.shard_id, *counts))
        self._floors[queue.shard_id] = queue.at
        return queue.at

    def lag(self, queue: QueueRow) -> ClockLag | None:
        """Return where the clock fell behind a queue's time, when it ever did."""
        row = self.execute("SELECT at, clock FROM broker_lags WHERE shard_id = ?", (queue.shard_id,)).fetchone()
        return ClockLag(*row) if row is not None else None

    def reached_ms(self, queue: QueueRow, due_ms: int) -> int:
        """Return when, by the clock, a queue's time comes to `due_ms`."""
        lag = self.lag(queue) if self.clock.now_ms() < queue.at else None
        return due_ms if lag is None else lag.reached_ms(due_ms)

    # The journal

    def journal(
        self,
        queue: QueueRow,
        event: Event,
        group: GroupRow | None,
        worker: str | None,
        rows: Sequence[Row],
        *,
        depth: int | None = None,
        group_name: GroupName | None = None,
    ) -> None:
        """Write one chunk with the group's present depth."""
        first = queue.seq + 1
        name = group_name
        if group is not None:
            name, depth = group.name, group.depth
        chunk = encode_chunk(
            queue.epoch, first, queue.at, event, queue.name, name, worker, depth, rows, self.actor,
            self.app_version if event in VERSIONED else None,
        )  # fmt: skip
        self._append(queue, len(rows), len(chunk), 0, chunk)

    def journal_recipe(self, queue: QueueRow, n: int, size: int, recipe: tuple[Any, ...]) -> None:
        """Write one chunk of arrivals whose rows are made from runs when they are read."""
        chunk = _encode(recipe)
        self._append(queue, n, len(chunk) + size, 1, chunk)

    def _append(self, queue: QueueRow, n: int, size: int, recipe: int, chunk: bytes) -> None:
        self._journaled.add(queue.id)
        queue.seq += n
        queue.bytes += size
        place = queue.shard_id << SHARD_BITS | queue.seq
        self._chunks.append((place, queue.shard_id, queue.seq, n, queue.at, size, recipe, chunk))

    # The end of the step

    def save(self) -> None:
        """Write back what changed."""
        if self.ended:
            self.runs.release(self.ended.items())
        if self._chunks:
            self.executemany(INSERT_CHUNK, self._chunks)
        for queue in self._queues.values():
            if queue.id in self._journaled or queue.counters != queue.saved:
                self.execute(UPDATE_SHARD, queue.shard_values)
                queue.saved = queue.counters
        for groups in self._groups.values():
            for group in groups.values():
                values = group.values
                if values != group.saved:
                    self.execute(UPDATE_GROUP, values)
                    group.saved = values
