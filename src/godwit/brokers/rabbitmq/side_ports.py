"""The side ports of a RabbitMQ broker: dead letters, journal and shared values, kept in the ledger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

import msgspec

from godwit.brokers.arguments import check_actor, check_limit, check_reader
from godwit.brokers.contract import DeadLetter, LetterId, ShardEnds, SharedEntry, Snapshot
from godwit.brokers.rabbitmq.layout.message import header_of, pack
from godwit.brokers.rabbitmq.layout.topology import Names
from godwit.brokers.rabbitmq.ledger import dead_letters as book_of_letters
from godwit.brokers.rabbitmq.ledger import queries
from godwit.brokers.rabbitmq.ledger.file import LedgerFile
from godwit.brokers.rabbitmq.ledger.transaction import LedgerTransaction
from godwit.brokers.rabbitmq.resend import Resender
from godwit.core.journal.shards import Position
from godwit.core.names import GroupName, QueueName

Drain = Callable[[], Awaitable[int]]
"""Takes over what the dead letter queues hold."""


class RabbitDeadLetters:
    """Messages given up on: the dead letter queues hand them over to the ledger, which is then the truth."""

    def __init__(self, ledger: LedgerFile, resender: Resender, names: Names, *, drain: Drain, body: bool) -> None:
        self._ledger, self._resender, self._names, self._drain, self._body = ledger, resender, names, drain, body

    async def page(
        self, name: QueueName, *, group: GroupName | None = None, after: LetterId | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """List those of a queue, or of all queues that share the dead letter queue `name`."""
        limit = check_limit(limit)
        await self._drain()
        return await self._ledger.step(lambda tx: book_of_letters.page(tx, name, group, after, limit))

    async def replay(self, letters: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        """Make them ready again, counters at zero, history kept; return those that do not exist."""
        check_actor(actor)
        await self._drain()

        def begin(tx: LedgerTransaction) -> tuple[list[book_of_letters.Revived], list[LetterId]]:
            claimed, unknown = book_of_letters.claim(tx, letters)
            return book_of_letters.revive(tx, claimed), unknown

        revived, unknown = await self._ledger.step(begin)
        copies = []
        for one in revived:
            stored = one.claimed.stored
            header = header_of(
                stored.envelope,
                epoch=one.epoch,
                seq=one.seq,
                ready_at_ms=one.now_ms,
                expiry_ms=0,
                group=one.claimed.group,
                bypass=True,
            )
            header = msgspec.structs.replace(header, errors=stored.header.errors)
            copies.append(pack(stored.envelope, header, "", self._names.group(one.claimed.queue, one.claimed.group)))
        try:
            if copies:
                await self._resender.deliver(copies)
        except BaseException:
            self._ledger.post(lambda tx: book_of_letters.not_replayed(tx, revived))
            raise
        await self._ledger.step(lambda tx: book_of_letters.replayed(tx, revived, body=self._body, actor=actor))
        return unknown

    async def discard(self, letters: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        """Delete them; return those that do not exist."""
        check_actor(actor)
        await self._drain()

        def step(tx: LedgerTransaction) -> list[LetterId]:
            claimed, unknown = book_of_letters.claim(tx, letters)
            book_of_letters.strike(tx, claimed, None, actor=actor)
            return unknown

        return await self._ledger.step(step, durable=True)


class RabbitJournal:
    """The journal, written after the fact."""

    def __init__(self, ledger: LedgerFile) -> None:
        self._ledger = ledger

    async def shards(self) -> Mapping[str, ShardEnds]:
        """Say what each shard holds."""
        return await self._ledger.step(queries.shards)

    async def read(self, shard: str, after: Position | None = None, *, limit: int = 1_000) -> list[bytes]:
        """Return chunks with rows beyond `after`."""
        limit = check_limit(limit)
        return await self._ledger.step(lambda tx: queries.read(tx, shard, after, limit))

    async def trim(self) -> int:
        """Drop what need not be kept."""
        return await self._ledger.step(queries.trim)

    async def commit(self, reader: str, shard: str, position: Position) -> None:
        """Register how far `reader` has got."""
        check_reader(reader, position)
        await self._ledger.step(lambda tx: queries.commit(tx, reader, shard, position))

    async def committed(self, reader: str) -> Mapping[str, Position]:
        """Return how far `reader` has got, by shard."""
        check_reader(reader)
        return await self._ledger.step(lambda tx: queries.committed(tx, reader))

    async def forget(self, reader: str) -> None:
        """Release a reader's hold."""
        check_reader(reader)
        await self._ledger.step(lambda tx: queries.forget(tx, reader))

    async def snapshot(self, queue: QueueName) -> Snapshot:
        """List a queue's copies together with the position that lists them all."""
        return await self._ledger.step(lambda tx: queries.snapshot(tx, queue))


class RabbitShared:
    """Small values that all processes with this ledger see."""

    def __init__(self, ledger: LedgerFile) -> None:
        self._ledger = ledger

    async def get(self, key: str) -> SharedEntry | None:
        """Return the value, or None when it is missing or past its ttl."""
        return await self._ledger.step(lambda tx: queries.get(tx, key))

    async def put(self, key: str, value: bytes, *, expected: int | None, ttl: timedelta | None = None) -> int | None:
        """Write when the present version is `expected` (None: when missing); return the new version, or None."""
        return await self._ledger.step(lambda tx: queries.put(tx, key, value, expected, ttl))

    async def delete(self, key: str) -> None:
        """Remove the value."""
        await self._ledger.step(lambda tx: queries.delete(tx, key))

    async def scan(self, prefix: str, *, after: str = "", limit: int | None = None) -> Mapping[str, SharedEntry]:
        """Return the values whose key begins with `prefix`, by their keys: those beyond `after`, at most `limit`."""
        return await self._ledger.step(lambda tx: queries.scan(tx, prefix, after, limit))

    async def clear(self, first: str, until: str) -> None:
        """Remove the values from the key `first` on, up to `until` without it."""
        await self._ledger.step(lambda tx: queries.clear(tx, first, until))
