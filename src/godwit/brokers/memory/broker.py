"""The async shell over the memory engine: it adds waiting, and nothing else."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Self

from godwit.brokers.arguments import check_limit, check_pull, check_settlements, groups_or_default, lease_ms
from godwit.brokers.contract import (
    NO_WAIT,
    DeadLetter,
    Delivery,
    LetterId,
    QueueStats,
    Receipt,
    Settlement,
    ShardEnds,
    SharedEntry,
    Snapshot,
)
from godwit.brokers.memory.engine import MemoryEngine
from godwit.core.clock import SYSTEM_CLOCK, Clock, milliseconds
from godwit.core.envelope import Envelope
from godwit.core.errors import BrokerClosed, JournalLost
from godwit.core.journal import Position
from godwit.core.names import AckId, GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec

Place = tuple[QueueName, GroupName]
Waiter = asyncio.Future[None]


class MemoryBroker:
    """A broker inside this process; what it holds ends with the process."""

    capabilities: frozenset[str] = frozenset()

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, engine: MemoryEngine | None = None) -> None:
        self._clock = clock
        self._engine = engine or MemoryEngine(clock=clock)
        self._waiters: dict[Place, deque[Waiter]] = {}
        self._timed: dict[Place, int] = {}
        self._closed = False
        self.dead_letters = MemoryDeadLetters(self)
        self.journal = MemoryJournal(self)
        self.shared = MemoryShared(self, clock)

    @property
    def closed(self) -> bool:
        """Whether it takes no more calls."""
        return self._closed

    @property
    def engine(self) -> MemoryEngine:
        """The engine, as long as the broker is open."""
        if self._closed:
            raise BrokerClosed("The memory broker")
        return self._engine

    async def declare(self, queue: QueueSpec, groups: Sequence[GroupSpec] = ()) -> None:
        """Create a queue and groups, or change their settings."""
        self.engine.declare(queue, groups_or_default(groups, exists=self._engine.declared(queue.name)))

    async def remove(self, queue: QueueName, group: GroupName | None = None) -> None:
        """Remove a queue, or one group, with all it holds; pulls waiting there end with an error."""
        self.engine.remove(queue, group)
        for place in [place for place in self._waiters if place[0] == queue and group in (None, place[1])]:
            self._wake(place, len(self._waiters[place]))

    async def purge(self, queue: QueueName, group: GroupName | None = None) -> int:
        """Delete everything that waits."""
        return self.engine.purge(queue, group)

    async def publish(self, envelopes: Sequence[Envelope]) -> list[Receipt]:
        """Store messages for every group."""
        try:
            return self.engine.publish(envelopes)
        finally:
            self.wake()

    async def pull(
        self,
        queue: QueueName,
        group: GroupName,
        *,
        worker: str,
        limit: int,
        lease: timedelta,
        wait: timedelta = NO_WAIT,
        max_bytes: int | None = None,
    ) -> list[Delivery]:
        """Lease up to `limit` messages; empty after `wait` when there are none."""
        check_pull(limit, wait, max_bytes)
        length_ms = lease_ms(lease)
        until = asyncio.get_running_loop().time() + wait.total_seconds()
        while True:
            deliveries = self.engine.pull(
                queue, group, worker=worker, limit=limit, lease_ms=length_ms, max_bytes=max_bytes
            )
            if deliveries or not await self._woken((queue, group), until):
                self.wake()  # what is left behind, or was released on the way, is for others who wait
                return deliveries

    async def _woken(self, place: Place, until: float) -> bool:
        """Wait until something may be ready; False when the time is up."""
        loop = asyncio.get_running_loop()
        left = until - loop.time()
        if left <= 0:
            return False
        due_ms = self._engine.next_due_ms(*place)
        if due_ms is not None:
            left = min(left, max(0.001, (due_ms - self._clock.now_ms()) / 1000))
        waiter: Waiter = loop.create_future()
        waiters = self._waiters.setdefault(place, deque())
        waiters.append(waiter)
        if due_ms is not None and due_ms <= self._timed.get(place, due_ms):
            self._timed[place] = due_ms
        timer = loop.call_later(left, _resolve, waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            self._timed.pop(place, None)
            self.wake()  # it may have been meant to fetch something, or to watch the time: let another do it
            raise
        finally:
            timer.cancel()
            if self._timed.get(place) == due_ms:
                self._timed.pop(place, None)
            if waiter in waiters:
                waiters.remove(waiter)
            if not waiters and self._waiters.get(place) is waiters:
                del self._waiters[place]
        return True

    def wake(self) -> None:
        """Wake as many waiting pulls as there are messages for them, or one when something is due earlier than known."""
        for place in [place for place, waiters in self._waiters.items() if waiters]:
            if ready := self._engine.ready(*place):
                self._wake(place, ready)
            elif (due_ms := self._engine.next_due_ms(*place)) is not None and due_ms < self._timed.get(
                place, due_ms + 1
            ):
                self._timed[place] = due_ms
                self._wake(place, 1)

    def _wake(self, place: Place, count: int) -> None:
        waiters = self._waiters[place]
        while waiters and count:
            count -= _resolve(waiters.popleft())

    async def settle(self, settlements: Sequence[Settlement]) -> list[AckId]:
        """End leases; return the ack ids that were not, or no longer, valid."""
        check_settlements(settlements)
        refused = self.engine.settle(settlements)
        self.wake()
        return refused

    async def extend(self, ack_ids: Sequence[AckId], lease: timedelta) -> list[AckId]:
        """Let leases end `lease` from now."""
        return self.engine.extend(ack_ids, lease_ms(lease))

    async def cancel(self, queue: QueueName, message_id: MessageId) -> bool:
        """Delete a message wherever it waits."""
        found = self.engine.cancel(queue, message_id)
        self.wake()
        return found

    async def maintain(self) -> int:
        """Do what time asks for."""
        changes = self.engine.maintain()
        self.shared.forget()
        self.wake()
        return changes

    async def stats(self) -> list[QueueStats]:
        """Say how much every queue holds."""
        return self.engine.stats()

    async def close(self) -> None:
        """End all waiting; what the engine holds stays in it."""
        self._closed = True
        for place in list(self._waiters):
            self._wake(place, len(self._waiters[place]))

    async def __aenter__(self) -> Self:
        """Nothing needs opening."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the broker."""
        await self.close()


def _resolve(waiter: Waiter) -> bool:
    if waiter.done():
        return False
    waiter.set_result(None)
    return True


class MemoryDeadLetters:
    """The dead letters of a memory broker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def page(
        self, name: QueueName, *, group: GroupName | None = None, after: LetterId | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """List those of a queue, or of all queues that share the dead letter queue `name`."""
        check_limit(limit)
        return self._broker.engine.letters(name, group, after, limit)

    async def replay(self, letters: Sequence[LetterId]) -> list[LetterId]:
        """Make them ready again."""
        unknown = self._broker.engine.replay(letters)
        self._broker.wake()
        return unknown

    async def discard(self, letters: Sequence[LetterId]) -> list[LetterId]:
        """Delete them."""
        return self._broker.engine.discard(letters)


class MemoryJournal:
    """The journal of a memory broker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def shards(self) -> Mapping[str, ShardEnds]:
        """Say what each shard holds."""
        return {name: shard.ends() for name, shard in self._broker.engine.shards.items()}

    async def read(self, shard: str, after: Position | None = None, *, limit: int = 1_000) -> list[bytes]:
        """Return chunks with rows beyond `after`."""
        check_limit(limit)
        found = self._broker.engine.shards.get(shard)
        if found is None:
            raise JournalLost(shard, "anything", "nothing: no queue of that name was ever declared")
        return found.read(after, limit)

    async def trim(self) -> int:
        """Drop what need not be kept."""
        return self._broker.engine.trim()

    async def commit(self, reader: str, shard: str, position: Position) -> None:
        """Register how far `reader` has got."""
        found = self._broker.engine.shards.get(shard)
        if found is None or found.epoch != position.epoch:
            raise JournalLost(shard, f"epoch {position.epoch}", "another journal" if found else "nothing")
        found.positions[reader] = position

    async def committed(self, reader: str) -> Mapping[str, Position]:
        """Return how far `reader` has got."""
        shards = self._broker.engine.shards
        return {name: shard.positions[reader] for name, shard in shards.items() if reader in shard.positions}

    async def forget(self, reader: str) -> None:
        """Release a reader's hold."""
        for shard in self._broker.engine.shards.values():
            shard.positions.pop(reader, None)

    async def snapshot(self, queue: QueueName) -> Snapshot:
        """List a queue's copies and the position that lists them all."""
        return self._broker.engine.snapshot(queue)


class MemoryShared:
    """Small values with versions and ttls."""

    def __init__(self, broker: MemoryBroker, clock: Clock) -> None:
        self._broker, self._clock = broker, clock

    @property
    def _entries(self) -> dict[str, tuple[SharedEntry, int | None]]:
        return self._broker.engine.shared

    async def get(self, key: str) -> SharedEntry | None:
        """Return the value, or None when it is missing or past its ttl."""
        entry, until_ms = self._entries.get(key, (None, None))
        return None if until_ms is not None and until_ms <= self._clock.now_ms() else entry

    async def put(self, key: str, value: bytes, *, expected: int | None, ttl: timedelta | None = None) -> int | None:
        """Write when the present version is `expected`."""
        present = await self.get(key)
        if (present.version if present else None) != expected:
            return None
        version = self._broker.engine.next_shared_version()
        until_ms = self._clock.now_ms() + milliseconds(ttl) if ttl is not None else None
        self._entries[key] = (SharedEntry(value, version), until_ms)
        return version

    async def delete(self, key: str) -> None:
        """Remove the value."""
        self._entries.pop(key, None)

    async def scan(self, prefix: str) -> Mapping[str, SharedEntry]:
        """Return all values whose key begins with `prefix`."""
        self.forget()
        return {key: entry for key, (entry, _) in self._entries.items() if key.startswith(prefix)}

    def forget(self) -> None:
        """Drop what is past its ttl."""
        now_ms = self._clock.now_ms()
        past = [key for key, (_, until_ms) in self._entries.items() if until_ms is not None and until_ms <= now_ms]
        for key in past:
            del self._entries[key]
