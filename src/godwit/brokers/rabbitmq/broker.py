"""RabbitMQBroker: the broker port on a RabbitMQ server, with a ledger for what RabbitMQ cannot keep."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import Any, Final, Self

from godwit.brokers.arguments import check_actor, check_hold, check_pull, checked_settlements, lease_ms, no_replicas
from godwit.brokers.contract import (
    NO_WAIT,
    Delivery,
    Place,
    QueueStats,
    Receipt,
    Settlement,
)
from godwit.brokers.listener import LoopListener
from godwit.brokers.rabbitmq.amqp.connection import Connection
from godwit.brokers.rabbitmq.amqp.errors import ConnectionLost, ServerRefused
from godwit.brokers.rabbitmq.amqp.reconnect import ConnectionCounts, ReconnectingConnection
from godwit.brokers.rabbitmq.consumer import GroupConsumer
from godwit.brokers.rabbitmq.dead_letters import DeadLetterCollector
from godwit.brokers.rabbitmq.declare import Queues
from godwit.brokers.rabbitmq.journal import JournalForwarder
from godwit.brokers.rabbitmq.layout.declarations import Declarer
from godwit.brokers.rabbitmq.layout.topology import Names, QueueNames
from godwit.brokers.rabbitmq.leases import LeaseTable
from godwit.brokers.rabbitmq.ledger import queries, settle
from godwit.brokers.rabbitmq.ledger.file import LedgerFile
from godwit.brokers.rabbitmq.ledger.transaction import LedgerTransaction
from godwit.brokers.rabbitmq.listen import RabbitListeners
from godwit.brokers.rabbitmq.maintain import LeaseReaper
from godwit.brokers.rabbitmq.publish import RabbitPublisher
from godwit.brokers.rabbitmq.pull import RabbitPuller
from godwit.brokers.rabbitmq.pull_wait import Waiter
from godwit.brokers.rabbitmq.resend import Resender
from godwit.brokers.rabbitmq.settle import RabbitSettler
from godwit.brokers.rabbitmq.side_ports import RabbitDeadLetters, RabbitJournal, RabbitShared
from godwit.brokers.rabbitmq.url import Address
from godwit.core.background import Background
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import BrokerClosed, BrokerUnavailable, GodwitError
from godwit.core.journal.external_journal import JournalWriter
from godwit.core.journal.vocabulary import Event
from godwit.core.logs import get_logger
from godwit.core.messages.envelope import Envelope
from godwit.core.names import AckId, GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.core.settings import DEFAULTS, RabbitMQSettings

PARTIAL_PROMISES: Final = frozenset({"2", "3", "4", "5", "6", "7", "8", "9", "10", "11"})
"""Promises kept in part. docs/howto/rabbitmq.md says for each what is kept and what is not."""

log = get_logger(__name__)


class RabbitMQBroker:
    """Messages in quorum queues, bookkeeping in the ledger."""

    app_version: str | None = None
    partial_promises = PARTIAL_PROMISES
    care_is_shared = False
    publishes_at_once = 1
    kind = "rabbitmq"

    def __init__(
        self,
        url: str | Address,
        *,
        names: dict[QueueName, QueueNames] | None = None,
        prefetch: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
        journal_bodies: bool = False,
    ) -> None:
        self.address = address = url if isinstance(url, Address) else Address.from_url(url)
        self.names = Names(namespace=address.namespace, given=names or {})
        self._clock = clock
        self._prefetch = address.prefetch or prefetch or DEFAULTS.rabbitmq.prefetch
        self._declarer = Declarer(address, self.names)
        self._link = ReconnectingConnection(address, restore=self._restore, lost=self._lost)
        self._ledger = LedgerFile(address.ledger, clock=clock)
        self._lease_table = LeaseTable()
        self._consumers: dict[Place, GroupConsumer] = {}
        self._resender = Resender(self._link, self._ledger, self.names)
        self._reaper = LeaseReaper(self._lease_table, self._ledger, self._resender, clock)
        prefix = secrets.token_hex(3)
        self._puller = RabbitPuller(
            self._lease_table,
            self._ledger,
            self._resender,
            self._reaper,
            clock,
            tokens=(f"{prefix}{number:x}" for number in count(1)),
            body=journal_bodies,
        )
        self._queues = Queues(
            self._link,
            self._ledger,
            self.names,
            self._lease_table,
            self._declarer,
            changed=self._puller.forget,
        )
        self._listeners = RabbitListeners(self._consumer, self._lease_table, clock, self._care)
        self._waiter = Waiter(self._listeners, self.settle, self._spawn)
        self._publisher = RabbitPublisher(
            self._link,
            self._ledger,
            self.names,
            body=journal_bodies,
            redeclare=self._queues.declare_again,
            waiting=lambda queue: self._declarer.waiting(self._link, queue),
        )
        self._settler = RabbitSettler(self._lease_table, self._ledger, self._resender, clock)
        self._collector = DeadLetterCollector(
            self._link, self._ledger, self.names, self._publisher, clock, body=journal_bodies
        )
        self.dead_letters = RabbitDeadLetters(
            self._ledger, self._resender, self.names, drain=self._drain, body=journal_bodies
        )
        self.journal = RabbitJournal(self._ledger)
        self.shared = RabbitShared(self._ledger)
        self._forwarder: JournalForwarder | None = None
        self._background = Background("rabbitmq")
        self._maintaining = asyncio.Lock()
        self._open = False
        self._was_open = False

    @classmethod
    def configured(
        cls, url: str, given: RabbitMQSettings, default_queue: QueueName | None = None, *, journal_bodies: bool = False
    ) -> Self:
        """Return the broker that a URL names, with the configured names of the default queue's parts."""
        # Without another word the default queue is called like its exchange.
        queue = default_queue or given.exchange_name
        parts = QueueNames(exchange=given.exchange_name, queue=given.queue_name, dlx=given.dlx_name, dlq=given.dlq_name)
        names = {queue: parts} if queue is not None else {}
        return cls(url, names=names, prefetch=given.prefetch, journal_bodies=journal_bodies)

    @property
    def connection_counts(self) -> ConnectionCounts:
        """Whether it is connected, and the channels opened and closed so far."""
        return self._link.counts

    async def connection(self) -> Connection:
        """Return the present connection, to look at the server it leads to."""
        return await self._link.connection()

    def keep_journal(self, writer: JournalWriter) -> None:
        """Hand the journal on to a store; it begins with what the ledger still has."""
        self._forwarder = JournalForwarder(self._ledger, writer)

    # Opening and closing

    async def __aenter__(self) -> Self:
        """Connect and open the ledger."""
        if not self._open:
            # The server first: an address that does not answer leaves no file behind.
            async with self._translating():
                await self._link.open()
            try:
                self._ledger.app_version = self.app_version
                await self._ledger.open()
            except BaseException:
                await self._link.close()
                raise
            self._open = self._was_open = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Give back what is held here and hang up; messages stay where they are."""
        if not self._open:
            return
        self._open = False
        self._listeners.wake_all()
        for consumer in self._consumers.values():
            consumer.close()
        await self._background.close()
        await self._link.close()
        held = self._lease_table.drop(lambda _: True)
        if held:
            await self._ledger.step(lambda tx: settle.lost(tx, held))
        await self._ledger.close()

    # Declaring

    async def declare(self, queue: QueueSpec, groups: Sequence[GroupSpec] = ()) -> None:
        """Create a queue and groups, or change their settings; without groups it gets the group `default`."""
        async with self._translating():
            await self._queues.declare(queue, groups)

    async def remove(self, queue: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> None:
        """Remove a queue, or one group, with all it holds."""
        check_actor(actor)
        async with self._translating():
            await self._queues.remove(queue, group, actor=actor)

    async def purge(self, queue: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> int:
        """Delete everything that waits (not what is leased or dead); return how many copies."""
        check_actor(actor)
        async with self._translating():
            return await self._queues.purge(queue, group, actor=actor)

    async def note_hold(
        self, event: Event, queue: QueueName, group: GroupName | None = None, *, hold: bytes | None, actor: str | None
    ) -> None:
        """Write down that a queue or a group was paused, is draining or was resumed."""
        check_hold(event, hold)
        check_actor(actor)
        await self._queues.note_hold(event, queue, group, hold=hold, actor=actor)

    async def cancel(self, queue: QueueName, message_id: MessageId, *, actor: str | None = None) -> bool:
        """Delete a message wherever it waits; copies that are leased or dead stay. Say whether there was one."""
        check_actor(actor)
        async with self._translating():
            return await self._queues.cancel(queue, message_id, actor=actor)

    # The way of a message

    async def publish(self, envelopes: Sequence[Envelope], *, min_replicas: int | None = None) -> list[Receipt]:
        """Store messages for every group; return a receipt for each, in order."""
        no_replicas(min_replicas)
        async with self._translating():
            return await self._publisher.publish(envelopes) if envelopes else []

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
        length_ms = lease_ms(lease)
        wait = check_pull(limit, wait, max_bytes, worker)
        place = (queue, group)

        async def once() -> list[Delivery]:
            async with self._translating():
                await self._puller.check(place)
                return await self._puller.pull(
                    self._consumer(place), worker=worker, limit=limit, length_ms=length_ms, max_bytes=max_bytes
                )

        if wait <= NO_WAIT:
            return await self._waiter.uncancelled(once())
        async with self._translating():
            await self._puller.check(place)
        return await self._waiter.pull(self._consumer(place), once, limit, wait)

    async def settle(self, settlements: Sequence[Settlement]) -> list[AckId]:
        """End leases; return the ack ids that were not, or no longer, valid: those changed nothing."""
        async with self._translating():
            settlements = checked_settlements(settlements)
            refused, ended = await self._settler.settle(settlements)
            for consumer in {held.consumer.place: held.consumer for held in ended}.values():
                consumer.unstall()
            return refused

    async def extend(self, ack_ids: Sequence[AckId], lease: timedelta) -> list[AckId]:
        """Let leases end `lease` from now; return the ack ids that were not valid."""
        async with self._translating():
            extended, refused = self._extended(ack_ids, lease)
            await self._ledger.step(lambda tx: _note_extension(tx, extended, refused))
            self._listeners.notify()
            return refused

    def extend_now(self, ack_ids: Sequence[AckId], lease: timedelta) -> list[AckId]:
        """Extend from any thread, also while the event loop is busy; otherwise like `extend`."""
        if not self._open:
            raise BrokerClosed(self.address.shown)
        extended, refused = self._extended(ack_ids, lease)
        self._ledger.post(lambda tx: _note_extension(tx, extended, refused))
        return refused

    def _extended(self, ack_ids: Sequence[AckId], lease: timedelta) -> tuple[list[tuple[Any, int]], list[AckId]]:
        return self._lease_table.extend(ack_ids, lease_ms(lease), self._clock.now_ms())

    def listen(self, places: Sequence[Place]) -> LoopListener:
        """Return a listener for these places."""
        return self._listeners.listen(places)

    # Time and bookkeeping

    async def maintain(self) -> int:
        """Take back due leases, take over and feed dead letters, forget and trim; return the number of changes."""
        async with self._translating(), self._maintaining:
            changes = 0
            for place in self._lease_table.places():
                changes += await self._reaper.maintain(place)
            changes += await self._collector.drain()
            changes += await self._collector.feed()
            if self._forwarder is not None:
                await self._forwarder.tell()
            await self._ledger.step(_tidy)
            return changes

    async def stats(self) -> list[QueueStats]:
        """Say how much every queue holds, as this ledger knows it."""
        async with self._translating():
            return await self._ledger.step(queries.stats)

    # Inside

    async def _drain(self) -> int:
        async with self._translating():
            return await self._collector.drain()

    def _consumer(self, place: Place) -> GroupConsumer:
        consumer = self._consumers.get(place)
        if consumer is None:
            consumer = self._consumers[place] = GroupConsumer(
                place,
                self.names.group(*place),
                prefetch=self._prefetch,
                connection=self._link.connection,
                arrived=self._listeners.arrived,
            )
        return consumer

    async def _restore(self, connection: Connection) -> None:
        await self._declarer.restore(connection)
        asyncio.get_running_loop().call_soon(self._listeners.notify)

    def _lost(self) -> None:
        """Let go of what the lost connection had delivered: the server delivers it again."""
        for consumer in self._consumers.values():
            consumer.lost()
        gone = self._lease_table.drop(lambda _: True)
        if gone:
            self._ledger.post(lambda tx: settle.lost(tx, gone))

    def _care(self, place: Place) -> None:
        async def care() -> None:
            async with self._translating():
                await self._reaper.maintain(place)
            self._listeners.look([place])

        self._spawn(care())

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        async def quietly() -> None:
            try:
                await work
            except GodwitError as error:
                log.warning("work in the background failed", error=str(error))

        self._background.once("rabbitmq errand", quietly())

    @asynccontextmanager
    async def _translating(self) -> AsyncIterator[None]:
        """Refuse calls to a closed broker, and say in our words what the server or the network did."""
        if not self._open and self._was_open:
            raise BrokerClosed(self.address.shown)
        try:
            yield
        except ConnectionLost as error:
            if self._was_open and not self._open:
                raise BrokerClosed(self.address.shown) from error
            remedy = "Godwit reconnects by itself; repeat the call (a publish is recognised by its ids)."
            raise BrokerUnavailable(self.address.shown, f"the connection was lost ({error})", remedy) from error
        except ServerRefused as error:
            remedy = "Declare the queue again if it was removed from the server; otherwise see the server's log."
            raise BrokerUnavailable(self.address.shown, str(error), remedy) from error


def _note_extension(tx: LedgerTransaction, extended: list[tuple[Any, int]], refused: list[AckId]) -> None:
    settle.extended(tx, extended)
    settle.refused(tx, refused)


def _tidy(tx: LedgerTransaction) -> None:
    queries.sweep(tx)
    queries.trim(tx, removed=queries.REMOVED_SHARDS)
