"""What a conformance test holds: one backend, its time, and short words for common steps.

A new backend joins the suite with one line in `BACKENDS`. Backends that take a clock get one set by hand, so that no
test waits; for the others (servers with a clock of their own) `let_pass` waits for real.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from godwit.brokers.contract import Ack, Broker, DeadLetter, Delivery, GiveUp, GroupStats, Nack, QueueStats, Receipt
from godwit.core.clock import SYSTEM_CLOCK, Clock, ManualClock, from_ms, milliseconds
from godwit.core.errors import BrokerClosed
from godwit.core.failures.failure import FailureKind, ProcessingError
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.projection import CopyState, Projection
from godwit.core.journal.shards import Position, shard_name
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message, Routing, Scheduling
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from tests.waiting import real_time

LEASE: Final = timedelta(milliseconds=400)
"""Short enough to wait for on a real server, and the shortest lease any test uses."""
LONG: Final = timedelta(minutes=10)
"""A lease or delay that no test outlives."""
MOMENT: Final = timedelta(milliseconds=50)
STEP: Final = timedelta(milliseconds=100)

Q: Final = QueueName("orders")
G: Final = GroupName("default")
Row = dict[str, Any]


class Backend(Protocol):
    """Where messages are kept while brokers come and go."""

    def open(self) -> Broker:
        """Return a broker on this backend, not entered yet; several may be open at once."""
        ...


class MemoryBackend:
    """Messages live in one engine that outlives its broker; all clients of a process are one broker."""

    def __init__(self, place: Path, clock: Clock) -> None:
        from godwit.brokers.memory import MemoryBroker, MemoryEngine

        self._clock, self._engine = clock, MemoryEngine(clock=clock)
        self._open: MemoryBroker | None = None

    def open(self) -> Broker:
        from godwit.brokers.memory import MemoryBroker

        if self._open is None or self._open.closed:
            self._open = MemoryBroker(engine=self._engine, clock=self._clock)
        return self._open


class SqliteBackend:
    """Messages live in one file."""

    def __init__(self, place: Path, clock: Clock) -> None:
        self._path, self._clock = place / "godwit.db", clock

    def open(self) -> Broker:
        from godwit.brokers.sqlite import SqliteBroker

        return SqliteBroker(self._path, clock=self._clock)


class RedisBackend:
    """Messages live on a private server that all tests of a run share; it is emptied for each."""

    program: Literal["redis", "valkey"] = "redis"

    def __init__(self, place: Path, clock: Clock) -> None:
        from tests.servers.redis import fresh

        self._set_up(fresh(self.program).url, clock)

    def _set_up(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock if isinstance(clock, ManualClock) else None

    def open(self) -> Broker:
        from godwit.brokers.redis import RedisBroker

        clock = self._clock
        return RedisBroker(self._url) if clock is None else RedisBroker(self._url, now=lambda: str(clock.now_ms()))


class ValkeyBackend(RedisBackend):
    """The same on Valkey."""

    program = "valkey"


class RedisClusterBackend(RedisBackend):
    """The same on a cluster of three masters."""

    def __init__(self, place: Path, clock: Clock) -> None:
        from tests.servers.redis_cluster import fresh_cluster

        self._set_up(fresh_cluster().url, clock)


class RedisSentinelBackend(RedisBackend):
    """The same on a master that sentinels name."""

    def __init__(self, place: Path, clock: Clock) -> None:
        from tests.servers.redis_replicas import fresh_sentinels

        self._set_up(fresh_sentinels().url, clock)


class RabbitBackend:
    """Messages live on a private node that all tests of a run share, under names of their own; the ledger is a file."""

    def __init__(self, place: Path, clock: Clock) -> None:
        from tests.servers.rabbitmq import the_node

        self._clock = clock
        namespace = f"t{secrets.token_hex(4)}."
        self._url = f"{the_node().url}?namespace={namespace}&ledger={place / 'ledger.db'}"

    def open(self) -> Broker:
        from godwit.brokers.rabbitmq import RabbitMQBroker

        return RabbitMQBroker(self._url, clock=self._clock)

    async def clear(self, broker: Broker) -> None:
        """Remove the queues of the test, so that the node does not fill up."""
        with suppress(BrokerClosed):
            for queue in await broker.stats():
                await broker.remove(queue.name)


BACKENDS: Final[dict[str, Callable[[Path, Clock], Backend]]] = {
    "memory": MemoryBackend,
    "sqlite": SqliteBackend,
    "rabbitmq": RabbitBackend,
    "redis": RedisBackend,
    "valkey": ValkeyBackend,
    "redis-cluster": RedisClusterBackend,
    "redis-sentinel": RedisSentinelBackend,
}
REAL_TIME: Final = frozenset({"rabbitmq"})
"""Backends whose server keeps its own time: tests wait for it."""
TOPOLOGIES: Final = frozenset({"redis-cluster", "redis-sentinel"})
"""Backends that are several servers of another backend's kind."""
RETURNS_BY_PUBLISH_POSITION: Final = frozenset(BACKENDS) - REAL_TIME
"""Backends whose returned messages go to their publish position; elsewhere they go by order of return."""


class Harness:
    """One backend under test."""

    def __init__(self, name: str, place: Path, *, live: bool = False, system: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self.clock: ManualClock | None = None if live or name in REAL_TIME else ManualClock()
        self._system = system
        self._backend = BACKENDS[name](place, self.clock or self._system)
        self._open: list[Broker] = []
        self.broker: Broker

    async def start(self) -> None:
        self.broker = await self.another()

    async def stop(self) -> None:
        for broker in self._open:
            await broker.close()
        self._open.clear()

    async def finish(self) -> None:
        """Stop, and take away what the backend would keep after the test."""
        clear = getattr(self._backend, "clear", None)
        if clear is not None:
            await clear(self.broker)
        await self.stop()

    async def another(self, app_version: str | None = None) -> Broker:
        """Return a further client of the same backend."""
        broker = self._backend.open()
        broker.app_version = app_version
        await broker.__aenter__()
        self._open.append(broker)
        return broker

    def unopened(self) -> Any:
        """Return a further client, which the test opens and closes itself."""
        return self._backend.open()

    @property
    def is_closed(self) -> bool:
        """Whether the client was closed behind the harness's back: those of one process may be one."""
        return bool(getattr(self.broker, "closed", False))

    @property
    def busy_connections(self) -> int:
        """How many connections of the client are in use, where it has any."""
        return int(getattr(self.broker, "busy_connections", 0))

    async def restart(self, app_version: str | None = None) -> None:
        """Close every client and come back as a new one, of a version of its application."""
        await self.stop()
        self.broker = await self.another(app_version)

    def gap(self, promise: int) -> bool:
        """Say whether the backend keeps this promise only in part, so that the weaker form is to be shown."""
        return str(promise) in self.broker.partial_promises

    # Time

    @property
    def now_ms(self) -> int:
        return (self.clock or self._system).now_ms()

    def at(self, later: timedelta = timedelta(0)) -> datetime:
        """Return the instant so much later than now."""
        return from_ms(self.now_ms + milliseconds(later))

    async def let_pass(self, duration: timedelta) -> None:
        """Move time on while the queues are maintained all along, so that there is no outage."""
        left = duration
        while left > timedelta(0):
            await self._move(min(left, STEP))
            await self.broker.maintain()
            left -= STEP

    async def outage(self, duration: timedelta) -> None:
        """Move time on while nothing is maintained.

        Of real time five leases at most: whether a gap is longer than the lease is all that brokers go by.
        """
        await self._move(min(duration, LEASE * 5) if self.clock is None else duration)

    async def _move(self, step: timedelta) -> None:
        if self.clock is None:
            await real_time(step)
        else:
            self.clock.advance(step)

    # Short words

    async def declare(self, *groups: str | GroupSpec, queue: str = Q, **settings: Any) -> None:
        specs = [GroupSpec(name=GroupName(group)) if isinstance(group, str) else group for group in groups]
        await self.broker.declare(QueueSpec(name=QueueName(queue), **settings), specs)

    def envelope(
        self,
        id: str,
        *,
        queue: str = Q,
        group: str | None = None,
        key: str | None = None,
        priority: int = 50,
        due: timedelta | None = None,
        expires: timedelta | None = None,
        payload: Any = None,
    ) -> Envelope:
        """Return a sealed message; `due` and `expires` count from now."""
        return seal(
            Message(
                id=MessageId(id),
                queue=QueueName(queue),
                priority=priority,
                ordering_key=key,
                payload=payload,
                created_at=self.at(),
                routing=Routing(consumer_group=GroupName(group) if group else None),
                scheduling=Scheduling(deliver_at=self.at(due)) if due is not None else None,
                expires_at=self.at(expires) if expires is not None else None,
            )
        )

    async def publish(self, *ids: str, **fields: Any) -> list[Receipt]:
        return await self.broker.publish([self.envelope(name, **fields) for name in ids])

    async def pull(
        self,
        limit: int = 1,
        *,
        queue: str = Q,
        group: str = G,
        lease: timedelta = LEASE,
        wait: timedelta = timedelta(0),
        worker: str = "worker-1",
        max_bytes: int | None = None,
    ) -> list[Delivery]:
        return await self.broker.pull(
            QueueName(queue), GroupName(group), worker=worker, limit=limit, lease=lease, wait=wait, max_bytes=max_bytes
        )

    async def pull_one(self, **options: Any) -> Delivery:
        """Pull exactly one."""
        (delivery,) = await self.pull(1, **options)
        return delivery

    async def ids(self, limit: int = 100, **options: Any) -> list[str]:
        """Pull, ack, and say which messages came, in order."""
        deliveries = await self.pull(limit, **options)
        assert await self.broker.settle([Ack(delivery.ack_id) for delivery in deliveries]) == []
        return [delivery.message_id for delivery in deliveries]

    async def give_up(
        self, delivery: Delivery, kind: FailureKind = FailureKind.PERMANENT, text: str = "no such user"
    ) -> None:
        assert await self.broker.settle([GiveUp(delivery.ack_id, kind, self.error(text))]) == []

    async def retry(self, delivery: Delivery, delay: timedelta = timedelta(0), text: str = "try later") -> None:
        assert await self.broker.settle([Nack(delivery.ack_id, delay, self.error(text))]) == []

    def error(self, text: str) -> ProcessingError:
        return ProcessingError(message=text, timestamp=self.at())

    async def queue_stats(self, queue: str = Q) -> QueueStats:
        return next(stats for stats in await self.broker.stats() if stats.name == queue)

    async def stats(self, queue: str = Q, group: str = G) -> GroupStats:
        return next(stats for stats in (await self.queue_stats(queue)).groups if stats.name == group)

    async def letters(self, name: str = Q, **options: Any) -> list[DeadLetter]:
        return await self.broker.dead_letters.page(QueueName(name), **options)

    async def rows(self, queue: str = Q, *, after: Position | None = None, limit: int = 1_000) -> list[Row]:
        """Return every row beyond `after`, page by page."""
        shard, rows = shard_name(queue), list[Row]()
        while chunks := await self.broker.journal.read(shard, after, limit=limit):
            page = [row for chunk in chunks for row in rows_of(decode_chunk(chunk), shard)]
            rows += [row for row in page if after is None or row["seq"] > after.seq]
            after = Position(rows[-1]["epoch"], rows[-1]["seq"])
        return rows

    async def events(self, queue: str = Q) -> list[str]:
        return [str(row["event"]) for row in await self.rows(queue)]

    async def projection(self, queue: str = Q) -> dict[Any, CopyState]:
        """Return the live state as the whole journal tells it."""
        projection = Projection()
        for row in await self.rows(queue):
            projection.apply(row)
        return projection.copies


def ids_of(things: Sequence[Delivery | DeadLetter]) -> list[str]:
    return [thing.envelope.id for thing in things]
