"""The side ports of the SQLite broker: dead letters, journal, shared values."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from godwit.brokers.arguments import check_actor, check_limit, check_reader
from godwit.brokers.contract import DeadLetter, LetterId, ShardEnds, SharedEntry, Snapshot
from godwit.brokers.sqlite import dead_letters, journal, shared, stats
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.core.clock import Clock
from godwit.core.journal.shards import Position
from godwit.core.names import GroupName, QueueName
from godwit.sqlite_writer.call import Step

T = TypeVar("T")


class File(Protocol):
    """What the ports need of the broker."""

    @property
    def clock(self) -> Clock:
        """What tells the time."""
        ...

    async def write(self, name: str, step: Step, *, durable: bool = False) -> Any:
        """Carry out a step that changes something."""
        ...

    async def read(self, step: Callable[[SqliteStep], T]) -> T:
        """Carry out a step that changes nothing."""
        ...

    async def glance(self, step: Callable[[sqlite3.Connection], T]) -> T:
        """Carry out a step that changes nothing and reads a page or two."""
        ...


class SqliteDeadLetters:
    """The dead letters of all queues in the file."""

    def __init__(self, file: File) -> None:
        self._file = file

    async def page(
        self, name: QueueName, *, group: GroupName | None = None, after: LetterId | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """List those of a queue, or of all queues that share the dead letter queue `name`."""
        limit = check_limit(limit)
        return await self._file.read(lambda work: dead_letters.page(work, name, group, after, limit))

    async def replay(self, letter_ids: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        """Make them ready again, as durably as a publish."""
        check_actor(actor)
        unknown: list[LetterId] = await self._file.write(
            "replay", lambda engine: engine.replay(letter_ids, actor=actor), durable=True
        )
        return unknown

    async def discard(self, letter_ids: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        """Delete them."""
        check_actor(actor)
        unknown: list[LetterId] = await self._file.write(
            "discard", lambda engine: engine.discard(letter_ids, actor=actor)
        )
        return unknown


class SqliteBrokerJournal:
    """The journal of all queues in the file."""

    def __init__(self, file: File) -> None:
        self._file = file

    async def shards(self) -> Mapping[str, ShardEnds]:
        """Say what each shard holds."""
        return await self._file.read(lambda work: journal.shards(work.connection))

    async def read(self, shard: str, after: Position | None = None, *, limit: int = 1_000) -> list[bytes]:
        """Return chunks with rows beyond `after`."""
        limit = check_limit(limit)
        return await self._file.read(lambda work: journal.read(work.connection, work.runs, shard, after, limit))

    async def trim(self) -> int:
        """Drop what need not be kept."""
        rows = 0
        while dropped := int(await self._file.write("trim", lambda engine: engine.trim())):
            rows += dropped
        return rows

    async def commit(self, reader: str, shard: str, position: Position) -> None:
        """Register how far `reader` has got."""
        check_reader(reader, position)
        await self._file.write("commit", lambda engine: engine.commit_reader(reader, shard, position))

    async def committed(self, reader: str) -> Mapping[str, Position]:
        """Return how far `reader` has got."""
        check_reader(reader)
        return await self._file.read(lambda work: journal.committed(work.connection, reader))

    async def forget(self, reader: str) -> None:
        """Release a reader's hold."""
        check_reader(reader)
        await self._file.write("forget", lambda engine: engine.forget_reader(reader))

    async def snapshot(self, queue: QueueName) -> Snapshot:
        """List a queue's copies and the position that lists them all."""
        return await self._file.read(lambda work: stats.snapshot(work, queue))


class SqliteShared:
    """Small values that all processes on the file see."""

    def __init__(self, file: File) -> None:
        self._file = file

    async def get(self, key: str) -> SharedEntry | None:
        """Return the value, or None when it is missing or past its ttl."""
        now_ms = self._file.clock.now_ms()
        return await self._file.glance(lambda connection: shared.get(connection, key, now_ms))

    async def put(self, key: str, value: bytes, *, expected: int | None, ttl: timedelta | None = None) -> int | None:
        """Write when the present version is `expected`."""
        version: int | None = await self._file.write("put", lambda engine: engine.put(key, value, expected, ttl))
        return version

    async def delete(self, key: str) -> None:
        """Remove the value."""
        await self._file.write("delete", lambda engine: engine.delete(key))

    async def scan(self, prefix: str, *, after: str = "", limit: int | None = None) -> Mapping[str, SharedEntry]:
        """Return the values whose key begins with `prefix`, by their keys: those beyond `after`, at most `limit`."""
        now_ms = self._file.clock.now_ms()
        return await self._file.glance(lambda connection: shared.scan(connection, prefix, after, limit, now_ms))

    async def clear(self, first: str, until: str) -> None:
        """Remove the values from the key `first` on, up to `until` without it."""
        await self._file.write("clear", lambda engine: engine.clear_shared(first, until))
