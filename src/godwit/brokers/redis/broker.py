"""The broker on a Redis server: an async shell over scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from itertools import product
from typing import Any, Final, Self

from godwit.brokers.arguments import check_actor, check_hold, check_pull, checked_settlements, lease_ms
from godwit.brokers.channel_counts import ChannelCounts
from godwit.brokers.contract import NO_WAIT, Delivery, HandBack, Place, QueueStats, Receipt, Settlement
from godwit.brokers.listener import LoopListener
from godwit.brokers.redis import stats
from godwit.brokers.redis.client.client import PATIENCE_SECONDS, RedisClient
from godwit.brokers.redis.client.connection import RedisConnection
from godwit.brokers.redis.client.errors import ServedClient
from godwit.brokers.redis.client.script_runner import Now, ScriptRunner, call_name, servers_time
from godwit.brokers.redis.dead_letters import RedisDeadLetters
from godwit.brokers.redis.inbox import Inbox
from godwit.brokers.redis.journal import RedisJournal
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.layout.catalog import Catalog
from godwit.brokers.redis.lease_cache import LeaseCache
from godwit.brokers.redis.listen.listeners import RedisListeners
from godwit.brokers.redis.listen.prefetch import PrefetchedPulls
from godwit.brokers.redis.maintain import RedisMaintenance
from godwit.brokers.redis.publish.publisher import RedisPublisher
from godwit.brokers.redis.pull import Pulled, PullOrder, RedisPuller
from godwit.brokers.redis.recount import Mended, mended_groups
from godwit.brokers.redis.renew import RedisRenewer
from godwit.brokers.redis.settle import RedisSettler
from godwit.brokers.redis.shared import RedisShared
from godwit.brokers.redis.url import RedisUrl
from godwit.core.background import Background
from godwit.core.errors import BrokerClosed, GodwitError, InvalidSetting
from godwit.core.journal.vocabulary import Event
from godwit.core.logs import get_logger
from godwit.core.messages.envelope import Envelope
from godwit.core.names import AckId, GroupName, MessageId, QueueName, is_message_id, is_name
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.core.settings import DEFAULTS

POOL_WAIT: Final = timedelta(seconds=5)

log = get_logger(__name__)


class RedisBroker:
    """A broker on Redis: one server, a cluster, or a master named by sentinels; for any number of processes.

    A publish is as safe as the server's settings say when it returns (`appendonly yes`, `appendfsync`), and as its
    queue's `min_replicas`. At most `max_connections` are open for calls to each server; pulls that wait share one more
    (in a cluster one per queue and partition), and renewing leases from a thread has one per server.
    `journal_bodies` says what `journal_body = auto` means: whether whole messages are kept in the journal.
    `now` gives scripts another time than the server's, for tests.
    """

    app_version: str | None = None
    partial_promises: frozenset[str] = frozenset()
    care_is_shared = True
    publishes_at_once = 2

    def __init__(
        self,
        url: str,
        *,
        max_connections: int = DEFAULTS.redis.max_connections,
        pool_wait: timedelta = POOL_WAIT,
        patience: timedelta = timedelta(seconds=PATIENCE_SECONDS),
        journal_bodies: bool = False,
        now: Now = servers_time,
    ) -> None:
        if max_connections < 1:
            raise InvalidSetting("max_connections", max_connections, "1 or more")
        self._target = RedisUrl.from_url(url)
        self._servers = RedisClient(
            self._target,
            max_connections=max_connections,
            wait_seconds=pool_wait.total_seconds(),
            patience_seconds=patience.total_seconds(),
        )
        self._reach = ScriptRunner(self._servers, now)
        self._catalog = Catalog(self._reach, bodies=journal_bodies)
        self._held = LeaseCache()
        self._publisher = RedisPublisher(self._reach, self._catalog)
        self._settler = RedisSettler(self._reach, self._held)
        self._taker = RedisPuller(self._reach, self._catalog, self._held, self._settler.settle)
        self._fetcher = PrefetchedPulls(self._taker, hand_back=self._return, lost=self._lost)
        self._inbox = Inbox(self._reach, self._catalog, self._publisher)
        self._renewer = RedisRenewer(self._servers, now)
        self._listeners: RedisListeners | None = None
        self._background = Background("redis")
        self._letters = RedisDeadLetters(self._reach, self._catalog, self._publisher)
        self._journal = RedisJournal(self._reach, self._catalog)
        self._shared = RedisShared(self._reach)
        self._maintenance = RedisMaintenance(
            self._reach, self._catalog, self._inbox, self._letters, self._journal, self._shared
        )

    @property
    def max_connections(self) -> int:
        """The most connections for calls to one server."""
        return self._servers.max_connections

    @property
    def busy_connections(self) -> int:
        """How many connections calls use at the moment."""
        return self._servers.busy_connections

    @property
    def connection_counts(self) -> ChannelCounts:
        """Connections that this process opened to Redis so far, and how many of them have ended."""
        return ChannelCounts(channel_opens=RedisConnection.opened, channel_closes=RedisConnection.ended)

    @property
    def dead_letters(self) -> RedisDeadLetters:
        """The dead letters of all queues."""
        return self._letters

    @property
    def journal(self) -> RedisJournal:
        """The journal of all queues."""
        return self._journal

    @property
    def shared(self) -> RedisShared:
        """The values shared by all processes."""
        return self._shared

    # Opening and closing

    async def __aenter__(self) -> Self:
        """Connect, so that a wrong address or password is known now."""
        if self._listeners is None:
            self._catalog.app_version = self.app_version
            await self._servers.open()
            self._listeners = RedisListeners(self._servers, self._catalog.partitions_of, self._fetcher)
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the broker."""
        await self.close()

    async def close(self) -> None:
        """End all waiting and all connections."""
        if self._servers.closed:
            return
        try:
            if self._listeners is not None:
                await self._listeners.close()
            await self._background.finish(1)
        finally:  # a caller that does not wait for the end leaves no connection open either
            self._servers.close()
            self._renewer.close()

    def _open(self) -> RedisListeners:
        if self._listeners is None or self._servers.closed:
            raise BrokerClosed(f"The Redis broker on {self._target.shown}")
        return self._listeners

    # The port

    async def declare(self, queue: QueueSpec, groups: Sequence[GroupSpec] = ()) -> None:
        """Create a queue and groups, or change their settings."""
        await self._catalog.declare(queue, groups)

    async def remove(self, queue: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> None:
        """Remove a queue, or one group, with all it holds; pulls waiting there end with an error."""
        await self._catalog.remove(queue, group, check_actor(actor))

    async def purge(self, queue: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> int:
        """Delete everything that waits."""
        check_actor(actor)
        known = await self._catalog.ask(queue)
        if group is not None:
            known.group(group)
        purged = 0
        for name in known.groups if group is None else (group,):
            for partition in known.partitions:
                names = (*keys.step(queue, partition), *keys.block(queue, name, partition))
                purged += await self._reach.run("purge", queue, names, (name, actor or "", call_name()))
        return purged

    async def note_hold(
        self, event: Event, queue: QueueName, group: GroupName | None = None, *, hold: bytes | None, actor: str | None
    ) -> None:
        """Write down that a queue or a group was paused, is draining or was resumed."""
        check_hold(event, hold)
        check_actor(actor)
        await self._journal.note_hold(event, queue, group, hold=hold, actor=actor)

    def publish(
        self, envelopes: Sequence[Envelope], *, min_replicas: int | None = None
    ) -> Coroutine[Any, Any, list[Receipt]]:
        """Store messages for every group."""
        return self._publisher.publish(envelopes, replicas=min_replicas)

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
        if not is_name(queue) or not is_name(group):
            (await self._catalog.ask(queue)).group(group)  # says which of them does not exist

        async def once() -> list[Delivery]:
            return await self._pull(queue, group, worker, limit, length_ms, max_bytes)

        if not wait:
            return await once()
        loop = asyncio.get_running_loop()
        until = loop.time() + wait.total_seconds()
        listener = self.listen([(queue, group)])
        try:
            while True:
                listener.clear()
                deliveries = await once()
                left = until - loop.time()
                if deliveries or left <= 0:
                    return deliveries
                listener.expect(worker=worker, limit=limit, lease=lease, max_bytes=max_bytes)
                await listener.wait(timedelta(seconds=left))
        finally:
            listener.close()

    async def _pull(
        self, queue: QueueName, group: GroupName, worker: str, limit: int, length_ms: int, max_bytes: int | None
    ) -> list[Delivery]:
        """Pull once; what a cancelled caller does not get is handed back."""
        listeners = self._open()
        ahead = self._fetcher.claim(PullOrder(queue, group, worker, length_ms, max_bytes or 0), limit)
        if ahead:
            return ahead
        pulling = asyncio.get_running_loop().create_task(
            self._taker.pull(queue, group, worker=worker, limit=limit, lease_ms=length_ms, max_bytes=max_bytes)
        )
        try:
            pulled = await asyncio.shield(pulling)
        except asyncio.CancelledError:
            self._in_background(self._hand_back(pulling))
            raise
        listeners.due((queue, group), pulled.due_ms)
        if pulled.inbox:
            try:
                moved = await self._inbox.move(queue, most=limit)
            except BaseException as error:
                if not isinstance(error, GodwitError) or not pulled.deliveries:
                    self._return(pulled.deliveries)
                    raise
                log.warning("an inbox cannot be moved", queue=queue, error=str(error))
            else:
                if moved and not pulled.deliveries:
                    return await self._pull(queue, group, worker, limit, length_ms, max_bytes)
        return pulled.deliveries

    async def _hand_back(self, pulling: asyncio.Task[Pulled]) -> None:
        pulled = await pulling
        if pulled.deliveries:
            await self._settler.settle([HandBack(delivery.ack_id) for delivery in pulled.deliveries])

    def _return(self, deliveries: Sequence[Delivery]) -> None:
        """Hand back what was leased for a caller that does not get it."""
        if deliveries:
            self._in_background(self._settler.settle([HandBack(delivery.ack_id) for delivery in deliveries]))

    def _lost(self, order: PullOrder, token: str, client: ServedClient) -> None:
        self._in_background(self._taker.give_back(order, token, client))

    def _in_background(self, errand: Coroutine[Any, Any, object]) -> None:
        """Hand back what a cancelled caller does not take; leases that cannot be handed back run out."""
        self._background.once("redis errand", errand, expected=(GodwitError,))

    def listen(self, places: Sequence[Place]) -> LoopListener:
        """Return a listener for these places; the broker must be open."""
        return self._open().listen(places)

    async def settle(self, settlements: Sequence[Settlement]) -> list[AckId]:
        """End leases; return the ack ids that were not, or no longer, valid."""
        settlements = checked_settlements(settlements)
        return await self._settler.settle(settlements)

    async def extend(self, ack_ids: Sequence[AckId], lease: timedelta) -> list[AckId]:
        """Let leases end `lease` from now."""
        return await self._settler.extend(ack_ids, lease_ms(lease))

    def extend_now(self, ack_ids: Sequence[AckId], lease: timedelta) -> list[AckId]:
        """Extend from any thread, also while the event loop is busy."""
        length_ms = lease_ms(lease)
        self._open()
        return self._renewer.extend(ack_ids, length_ms)

    async def cancel(self, queue: QueueName, message_id: MessageId, *, actor: str | None = None) -> bool:
        """Delete a message wherever it waits; the server looks through its queue, a thousand copies at a time."""
        check_actor(actor)
        known = await self._catalog.ask(queue)
        if not is_message_id(message_id):
            return False
        found = 0
        for group, partition in product(known.groups, known.partitions):
            names, place = (*keys.step(queue, partition), *keys.block(queue, group, partition)), b""
            while True:
                words = (group, message_id, place, actor or "", call_name())
                count, place = await self._reach.run("cancel", queue, names, words)
                found += count
                if not place:
                    break
        return found > 0

    async def maintain(self) -> int:
        """Do what time asks for; what fails in one queue holds up no other."""
        return await self._maintenance.run()

    async def mended(self) -> list[Mended]:
        """Return the groups whose counters did not agree with what is stored: `maintain` counted them anew, or will."""
        return await mended_groups(self._reach, await self._catalog.all())

    async def specs(self) -> dict[QueueName, QueueSpec]:
        """Return the queues as they are declared."""
        return {queue.name: queue.spec for queue in await self._catalog.all()}

    async def stats(self) -> list[QueueStats]:
        """Say how much every queue holds."""
        return await stats.stats(self._reach, await self._catalog.all())
