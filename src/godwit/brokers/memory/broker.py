"""The async shell over the memory engine: it adds waiting, and nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import parse_qs, urlsplit

from godwit.brokers.arguments import (
    check_actor,
    check_hold,
    check_limit,
    check_pull,
    check_reader,
    checked_settlements,
    groups_or_default,
    lease_ms,
    lives_until_ms,
    no_replicas,
    one_server_only,
)
from godwit.brokers.contract import (
    NO_WAIT,
    DeadLetter,
    Delivery,
    LetterId,
    Place,
    QueueStats,
    Receipt,
    Settlement,
    ShardEnds,
    SharedEntry,
    Snapshot,
)
from godwit.brokers.listener import LoopListener
from godwit.brokers.memory.engine import MemoryEngine
from godwit.brokers.memory.listen import MemoryListeners
from godwit.brokers.memory.saved_state import left_over, load, save
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import BrokerClosed, InvalidSetting, JournalLost, UnknownOption
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import Event
from godwit.core.logs import get_logger
from godwit.core.messages.envelope import Envelope
from godwit.core.names import AckId, GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec

T = TypeVar("T")

log = get_logger(__name__)


class MemoryBroker:
    """A broker inside this process; what it holds ends with the process, or is kept in the file `spill`.

    With `warns` it says on closing how much is lost: of use to applications, not to their tests.
    """

    app_version: str | None = None
    partial_promises: frozenset[str] = frozenset()
    care_is_shared = True
    publishes_at_once = 1

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM_CLOCK,
        engine: MemoryEngine | None = None,
        spill: Path | None = None,
        warns: bool = False,
    ) -> None:
        self._clock = clock
        self._spill, self._warns = spill, warns
        self._engine = engine or MemoryEngine(clock=clock)
        self._lock = threading.Lock()
        self._listeners = MemoryListeners(self._look, self._attend, clock)
        self._closed = False
        self.dead_letters = MemoryDeadLetters(self)
        self.journal = MemoryJournal(self)
        self.shared = MemoryShared(self, clock)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return the broker of `memory://`, or of `memory://?spill=file.db`."""
        parts = urlsplit(url)
        options = parse_qs(parts.query, keep_blank_values=True)
        files = options.pop("spill", None)
        if options:
            raise UnknownOption(url, next(iter(options)), ("spill",))
        if parts.netloc or parts.path.strip("/") or parts.fragment or files == [""]:
            raise InvalidSetting("url", url, "memory://, or memory://?spill=file.db")
        return cls(spill=Path(files[0]) if files else None, warns=True)

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
        one_server_only(queue)
        wanted = groups_or_default(groups, exists=self._engine.declared(queue.name))
        self.do(lambda engine: engine.declare(queue, wanted))

    async def remove(self, queue: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> None:
        """Remove a queue, or one group, with all it holds; pulls waiting there end with an error."""
        check_actor(actor)
        self.do(lambda engine: engine.remove(queue, group, actor=actor))
        self.notify()

    async def purge(self, queue: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> int:
        """Delete everything that waits."""
        check_actor(actor)
        return self.do(lambda engine: engine.purge(queue, group, actor=actor))

    async def note_hold(
        self, event: Event, queue: QueueName, group: GroupName | None = None, *, hold: bytes | None, actor: str | None
    ) -> None:
        """Write down that a queue or a group was paused, is draining or was resumed."""
        check_hold(event, hold)
        check_actor(actor)
        self.do(lambda engine: engine.note_hold(event, queue, group, hold, actor))

    async def publish(self, envelopes: Sequence[Envelope], *, min_replicas: int | None = None) -> list[Receipt]:
        """Store messages for every group."""
        no_replicas(min_replicas)
        try:
            return self.do(lambda engine: engine.publish(envelopes, self.app_version))
        finally:
            self.notify()

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
        wait = check_pull(limit, wait, max_bytes, worker)
        length_ms = lease_ms(lease)
        until = time.monotonic() + wait.total_seconds()
        listener = self.listen([(queue, group)]) if wait else None
        try:
            while True:
                if listener is not None:
                    listener.clear()
                deliveries = self.do(
                    lambda engine: engine.pull(
                        queue,
                        group,
                        worker=worker,
                        limit=limit,
                        lease_ms=length_ms,
                        max_bytes=max_bytes,
                        app_version=self.app_version,
                    )
                )
                left = until - time.monotonic()
                if deliveries or listener is None or left <= 0:
                    return deliveries
                await listener.wait(timedelta(seconds=left))
        finally:
            if listener is not None:
                listener.close()
            else:
                self.notify()  # what is left behind, or was released on the way, is for those who wait

    def listen(self, places: Sequence[Place]) -> LoopListener:
        """Return a listener for these places."""
        return self._listeners.listen(places)

    def _look(self, place: Place) -> tuple[int, int | None]:
        with self._lock:
            return self._engine.ready(*place), self._engine.next_due_ms(*place)

    def _attend(self, place: Place, due_ms: int) -> None:
        with self._lock:
            self._engine.attend(*place, due_ms)

    def notify(self) -> None:
        """Wake those who wait for what is ready now."""
        self._listeners.notify()

    def do(self, operation: Callable[[MemoryEngine], T]) -> T:
        """Carry out one call; the renewing thread may be at it too."""
        with self._lock:
            return operation(self.engine)

    async def in_portions(self, operation: Callable[[MemoryEngine], Iterator[int]]) -> int:
        """Carry out a call that gives the changes of each portion; the event loop turns between two of them."""
        changes = 0
        portions = self.do(operation)
        while (portion := self.do(lambda _: next(portions, None))) is not None:
            changes += portion
            if portion:
                self.notify()
                await asyncio.sleep(0)
        return changes

    async def settle(self, settlements: Sequence[Settlement]) -> list[AckId]:
        """End leases; return the ack ids that were not, or no longer, valid."""
        settlements = checked_settlements(settlements)
        refused = self.do(lambda engine: engine.settle(settlements))
        self.notify()
        return refused

    async def extend(self, ack_ids: Sequence[AckId], lease: timedelta) -> list[AckId]:
        """Let leases end `lease` from now."""
        return self.extend_now(ack_ids, lease)

    def extend_now(self, ack_ids: Sequence[AckId], lease: timedelta) -> list[AckId]:
        """Extend from any thread."""
        length_ms = lease_ms(lease)
        return self.do(lambda engine: engine.extend(ack_ids, length_ms))

    async def cancel(self, queue: QueueName, message_id: MessageId, *, actor: str | None = None) -> bool:
        """Delete a message wherever it waits."""
        check_actor(actor)
        found = self.do(lambda engine: engine.cancel(queue, message_id, actor=actor))
        self.notify()
        return found

    async def maintain(self) -> int:
        """Do what time asks for, in portions between which the event loop turns."""
        changes = await self.in_portions(lambda engine: engine.maintain())
        self.shared.forget()
        self.notify()
        return changes

    async def stats(self) -> list[QueueStats]:
        """Say how much every queue holds."""
        return self.do(lambda engine: engine.stats())

    async def close(self) -> None:
        """End all waiting; what the engine still holds is saved, or said to be lost."""
        if self._closed:
            return
        self._closed = True
        self._listeners.wake_all()
        with self._lock:
            count, dead = left_over(self._engine)
            if count and self._spill is not None:
                log.info("messages of the memory broker saved", count=save(self._spill, self._engine))
            elif count and self._warns:
                log.warning("messages lost with the memory broker", count=count, dead_letters=dead)

    async def __aenter__(self) -> Self:
        """Take in what an earlier process saved; nothing else needs opening."""
        if self._spill is not None and not self._closed:
            with self._lock:
                count = load(self._spill, self._engine, self._clock.now_ms())
            if count:
                log.info("messages of an earlier memory broker taken in", count=count)
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the broker."""
        await self.close()


class MemoryDeadLetters:
    """The dead letters of a memory broker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def page(
        self, name: QueueName, *, group: GroupName | None = None, after: LetterId | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """List those of a queue, or of all queues that share the dead letter queue `name`."""
        limit = check_limit(limit)
        return self._broker.do(lambda engine: engine.letters(name, group, after, limit))

    async def replay(self, letters: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        """Make them ready again."""
        check_actor(actor)
        unknown = self._broker.do(lambda engine: engine.replay(letters, actor=actor))
        self._broker.notify()
        return unknown

    async def discard(self, letters: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        """Delete them."""
        check_actor(actor)
        return self._broker.do(lambda engine: engine.discard(letters, actor=actor))


class MemoryJournal:
    """The journal of a memory broker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def shards(self) -> Mapping[str, ShardEnds]:
        """Say what each shard holds."""
        return {name: shard.ends() for name, shard in self._broker.engine.shards.items()}

    async def read(self, shard: str, after: Position | None = None, *, limit: int = 1_000) -> list[bytes]:
        """Return chunks with rows beyond `after`."""
        limit = check_limit(limit)
        found = self._broker.engine.shards.get(shard)
        if found is None:
            raise JournalLost(shard, "anything", "nothing: no queue of that name was ever declared")
        return found.read(after, limit)

    async def trim(self) -> int:
        """Drop what need not be kept."""
        return await self._broker.in_portions(lambda engine: engine.trim())

    async def commit(self, reader: str, shard: str, position: Position) -> None:
        """Register how far `reader` has got."""
        check_reader(reader, position)
        found = self._broker.engine.shards.get(shard)
        if found is None or found.epoch != position.epoch:
            raise JournalLost(shard, f"epoch {position.epoch}", "another journal" if found else "nothing")
        found.positions[reader] = position

    async def committed(self, reader: str) -> Mapping[str, Position]:
        """Return how far `reader` has got."""
        check_reader(reader)
        shards = self._broker.engine.shards
        return {name: shard.positions[reader] for name, shard in shards.items() if reader in shard.positions}

    async def forget(self, reader: str) -> None:
        """Release a reader's hold."""
        check_reader(reader)
        for shard in self._broker.engine.shards.values():
            shard.positions.pop(reader, None)

    async def snapshot(self, queue: QueueName) -> Snapshot:
        """List a queue's copies and the position that lists them all."""
        return self._broker.do(lambda engine: engine.snapshot(queue))


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
        until_ms = lives_until_ms(ttl, self._clock.now_ms())
        self._entries[key] = (SharedEntry(value, version), until_ms)
        return version

    async def delete(self, key: str) -> None:
        """Remove the value."""
        self._entries.pop(key, None)

    async def scan(self, prefix: str, *, after: str = "", limit: int | None = None) -> Mapping[str, SharedEntry]:
        """Return the values whose key begins with `prefix`, by their keys: those beyond `after`, at most `limit`."""
        self.forget()
        found = sorted(key for key in self._entries if key.startswith(prefix) and key > after)
        return {key: self._entries[key][0] for key in found[:limit]}

    async def clear(self, first: str, until: str) -> None:
        """Remove the values from the key `first` on, up to `until` without it."""
        for key in [key for key in self._entries if first <= key < until]:
            del self._entries[key]

    def forget(self) -> None:
        """Drop what is past its ttl."""
        now_ms = self._clock.now_ms()
        past = [key for key, (_, until_ms) in self._entries.items() if until_ms is not None and until_ms <= now_ms]
        for key in past:
            del self._entries[key]
