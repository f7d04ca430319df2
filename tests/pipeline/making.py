"""Journals for tests: made by a real broker, or written chunk by chunk where a test needs a certain history."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from godwit.brokers.contract import Ack, GiveUp, Nack
from godwit.brokers.sqlite import SqliteBroker
from godwit.brokers.sqlite.work import SHARD_BITS
from godwit.core.envelope import seal_all
from godwit.core.failure import FailureKind
from godwit.core.journal import LAYOUTS, Event, encode_chunk
from godwit.core.message import Message
from godwit.core.queues import GroupSpec, QueueSpec

LEASE = timedelta(seconds=30)


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def traffic(
    path: Path, queue: str = "orders", *, messages: int = 300, groups: Sequence[str] = ("billing", "mail")
) -> None:
    """Publish, deliver, ack, nack and give up, as an application would."""

    async def play() -> None:
        async with SqliteBroker(path) as broker:
            await broker.declare(QueueSpec(name=queue), [GroupSpec(name=group) for group in groups])
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
        self._connection = sqlite3.connect(path, isolation_level=None)

    async def _create(self) -> None:
        async with SqliteBroker(self.path):
            pass

    @property
    def url(self) -> str:
        return url_of(self.path)

    def close(self) -> None:
        self._connection.close()

    def declare(self, *queues: str) -> None:
        """Make queues, so that their shards exist."""

        async def play() -> None:
            async with SqliteBroker(self.path) as broker:
                for queue in queues:
                    await broker.declare(QueueSpec(name=queue))

        asyncio.run(play())

    def append(self, chunks: Sequence[tuple[str, int, Event, str | None, int | None, Sequence[Sequence[Any]]]]) -> None:
        """Append chunks `(queue, at_ms, event, group, depth, rows)` to the shards of their queues."""
        ends = {
            name: [place, epoch, seq, size]
            for place, name, epoch, seq, size in self._connection.execute(
                "SELECT id, name, epoch, seq, bytes FROM broker_shards"
            )
        }
        written = []
        for queue, at_ms, event, group, depth, rows in chunks:
            shard = ends[f"{queue}#0"]
            chunk = encode_chunk(shard[1], shard[2] + 1, at_ms, event, queue, group, "w", depth, rows)
            shard[2] += len(rows)
            shard[3] += len(chunk)
            written.append(
                (shard[0] << SHARD_BITS | shard[2], shard[0], shard[2], len(rows), at_ms, len(chunk), 0, chunk)
            )
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "INSERT INTO broker_journal (place, shard, last_seq, n, at, bytes, recipe, chunk) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            written,
        )
        for place, _, seq, size in ends.values():
            self._connection.execute("UPDATE broker_shards SET seq = ?, bytes = ? WHERE id = ?", (seq, size, place))
        self._connection.execute("COMMIT")


def row(event: Event, **fields: Any) -> list[Any]:
    """Return a row in the layout of its event."""
    unknown = fields.keys() - set(LAYOUTS[event])
    assert not unknown, unknown
    return [fields.get(name) for name in LAYOUTS[event]]
