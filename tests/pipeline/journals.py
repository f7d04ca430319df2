"""Journals for tests: made by a real broker, or written chunk by chunk where a test needs a certain history."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from godwit.brokers.contract import Ack, GiveUp, Nack
from godwit.brokers.sqlite import SqliteBroker
from godwit.brokers.sqlite.layout.step import SHARD_BITS
from godwit.brokers.urls import connect
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.chunks import encode_chunk
from godwit.core.journal.vocabulary import LAYOUTS, Event
from godwit.core.messages.envelope import seal_all
from godwit.core.messages.message import Message
from godwit.core.queues import GroupSpec, JournalBody, QueueSpec

LEASE = timedelta(seconds=30)


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def traffic(
    path: Path | str, queue: str = "orders", *, messages: int = 300, groups: Sequence[str] = ("billing", "mail")
) -> None:
    """Publish, deliver, ack, nack and give up, as an application would, on a file or any other broker by its URL."""

    async def play() -> None:
        async with connect(path if isinstance(path, str) else url_of(path)) as broker:
            await broker.declare(
                QueueSpec(name=queue, journal_body=JournalBody.ON), [GroupSpec(name=group) for group in groups]
            )
            await broker.publish(
                seal_all(
                    [
                        Message(id=f"{queue}-{number}", queue=queue, type="order.created", payload={"n": number})
                        for number in range(messages)
                    ]
                )
            )
            for group in groups:
                while found := await broker.pull(queue, group, worker="w1", limit=100, lease=LEASE):
                    await broker.settle(
                        [
                            GiveUp(one.ack_id, FailureKind.PERMANENT, run_ms=7)
                            if place % 10 == 0
                            else Nack(one.ack_id, run_ms=5)
                            if place % 10 == 1 and one.attempt == 1
                            else Ack(one.ack_id, run_ms=place, result=b'{"ok":true}')
                            for place, one in enumerate(found)
                        ]
                    )

    asyncio.run(play())


class WrittenJournal:
    """A SQLite file whose journal a test writes itself: any event, any time, any number of shards."""

    def __init__(self, path: Path) -> None:
        self.path = path
        asyncio.run(self._create())

    async def _create(self) -> None:
        async with SqliteBroker(self.path):
            pass

    @property
    def url(self) -> str:
        return url_of(self.path)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one step: a lasting connection would be in the way of a broker in this process."""
        connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        finally:
            connection.close()

    def declare(self, *queues: str) -> None:
        """Make queues, so that their shards exist."""

        async def play() -> None:
            async with SqliteBroker(self.path) as broker:
                for queue in queues:
                    await broker.declare(QueueSpec(name=queue))

        asyncio.run(play())

    def drop(self, queue: str, seq: int) -> None:
        """Trim a journal: forget every chunk that ends at or before a row."""
        with self._opened() as connection:
            place, *_ = connection.execute("SELECT id FROM broker_shards WHERE name = ?", (f"{queue}#0",)).fetchone()
            connection.execute("DELETE FROM broker_journal WHERE shard = ? AND last_seq <= ?", (place, seq))
            (first,) = connection.execute(
                "SELECT min(last_seq - n + 1) FROM broker_journal WHERE shard = ?", (place,)
            ).fetchone()
            connection.execute("UPDATE broker_shards SET first_seq = ? WHERE id = ?", (first, place))

    def vanish(self, queue: str) -> None:
        """Forget a queue's shard and all its rows, as a server does that lost them."""
        with self._opened() as connection:
            connection.execute("PRAGMA defer_foreign_keys = on")
            (place,) = connection.execute("SELECT id FROM broker_shards WHERE name = ?", (f"{queue}#0",)).fetchone()
            connection.execute("DELETE FROM broker_journal WHERE shard = ?", (place,))
            connection.execute("DELETE FROM broker_readers WHERE shard_id = ?", (place,))
            connection.execute("DELETE FROM broker_shards WHERE id = ?", (place,))

    def append(self, chunks: Sequence[tuple[str, int, Event, str | None, int | None, Sequence[Sequence[Any]]]]) -> None:
        """Append chunks `(queue, at_ms, event, group, depth, rows)` to the shards of their queues."""
        with self._opened() as connection:
            found = connection.execute("SELECT id, name, epoch, seq, bytes FROM broker_shards")
            ends = {name: [place, epoch, seq, size] for place, name, epoch, seq, size in found}
            written = []
            for queue, at_ms, event, group, depth, rows in chunks:
                shard = ends[f"{queue}#0"]
                chunk = encode_chunk(shard[1], shard[2] + 1, at_ms, event, queue, group, "w", depth, rows)
                shard[2] += len(rows)
                shard[3] += len(chunk)
                place = shard[0] << SHARD_BITS | shard[2]
                written.append((place, shard[0], shard[2], len(rows), at_ms, len(chunk), 0, chunk))
            connection.executemany(
                "INSERT INTO broker_journal (place, shard, last_seq, n, at, bytes, recipe, chunk) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                written,
            )
            for place, _, seq, size in ends.values():
                connection.execute("UPDATE broker_shards SET seq = ?, bytes = ? WHERE id = ?", (seq, size, place))


def row(event: Event, **fields: Any) -> list[Any]:
    """Return a row in the layout of its event."""
    unknown = fields.keys() - set(LAYOUTS[event])
    assert not unknown, unknown
    return [fields.get(name) for name in LAYOUTS[event]]


BEGIN_MS = 4_102_444_800_000 - 2 * 3_600_000
"""Two hours before 2100: after any declaration, and histories of hours cross midnight and a new year."""


def random_history(
    queues: Sequence[str], rows: int, *, seed: int, begin_ms: int = BEGIN_MS, hours: float = 4, chunk_rows: int = 100
) -> Iterator[tuple[str, int, Event, str | None, int | None, list[list[Any]]]]:
    """Give chunks with so many rows of all kinds over some hours; not a possible story, but all numbers."""
    chance = Random(seed)
    left, at_ms, number = rows, float(begin_ms), 0
    while left > 0:
        n = min(left, chunk_rows if chance.random() < 0.8 else chance.randint(1, chunk_rows))
        event = chance.choice(_KINDS)
        group = None if event == Event.DUPLICATE else chance.choice(("billing", "mail", "audit"))
        depth = None if group is None else chance.randint(0, 10_000)
        yield (
            chance.choice(queues),
            int(at_ms),
            event,
            group,
            depth,
            [_row(chance, event, number + place) for place in range(n)],
        )
        number += n
        left -= n
        at_ms += chance.expovariate(1) * hours * 3_600_000 * n / rows


_KINDS = (
    *(Event.ENQUEUED,) * 6, *(Event.DELIVERED,) * 6, *(Event.ACKED,) * 5, Event.NACKED, Event.DEAD_LETTERED,
    Event.MESSAGE_EXPIRED, Event.SCHEDULED, Event.LEASE_EXPIRED, Event.EXTENDED, Event.DUPLICATE, Event.REPLAYED,
)  # fmt: skip


def _row(chance: Random, event: Event, number: int) -> list[Any]:
    values = {
        "message_id": f"m{number}", "publish_seq": number, "copy": chance.randint(0, 2), "copies": 3,
        "type": "order.created", "priority": 50, "lane": 1, "size": 300, "body": b'{"payload": "' + b"x" * 40 + b'"}',
        "delivery_id": f"d{number}", "attempt": 1, "failures": 0, "crashes": 0,
        "wait_ms": int(chance.lognormvariate(4, 2)),
        "run_ms": int(chance.lognormvariate(3, 2)) if number % 17 else None,
        "ready_at": 4_102_444_800_000, "result": b"{}", "error_kind": "transient", "error_fingerprint": "f00",
    }  # fmt: skip
    return [values.get(name) for name in LAYOUTS[event]]


def copy_histories(
    queue: str, rows: int, *, waiting: int, chunk_rows: int = 100
) -> Iterator[tuple[str, int, Event, str | None, int | None, list[list[Any]]]]:
    """Yield chunks with so many rows of valid histories: each message is delivered and done, after those that wait."""
    behind, given, number = waiting // chunk_rows, 0, 0
    while given < rows:
        at_ms = BEGIN_MS + 10 * number
        steps = [(Event.ENQUEUED, number)]
        if number >= behind:
            steps += [(Event.DELIVERED, number - behind), (Event.ACKED, number - behind)]
        for event, chunk in steps:
            first = 1 + chunk * chunk_rows
            made = [_step(event, at_ms, publish_seq) for publish_seq in range(first, first + chunk_rows)]
            yield queue, at_ms, event, "default", waiting, made
            given += chunk_rows
        number += 1


def _step(event: Event, at_ms: int, publish_seq: int) -> list[Any]:
    values = {
        "message_id": f"0198c4a0-0000-7000-8000-{publish_seq:012d}", "publish_seq": publish_seq, "copy": 0, "copies": 1,
        "type": "order.created", "priority": 50, "lane": 1, "size": 300, "ready_at": at_ms, "body": b"{}" * 40,
        "delivery_id": f"orders#0#default#{publish_seq:x}", "attempt": 1, "failures": 0, "crashes": 0,
        "lease_until": at_ms + 30_000, "wait_ms": 5, "run_ms": 3,
    }  # fmt: skip
    return [values.get(name) for name in LAYOUTS[event]]
