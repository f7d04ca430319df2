"""Pulling: take what came in, let the ledger judge each message, and send on what is not to be delivered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from godwit.brokers.arguments import MAX_PULL
from godwit.brokers.contract import Delivery, Place
from godwit.brokers.rabbitmq.amqp.channel import Channel
from godwit.brokers.rabbitmq.amqp.frames import Incoming
from godwit.brokers.rabbitmq.consumer import GroupConsumer
from godwit.brokers.rabbitmq.layout.message import InboundMessage, unpack
from godwit.brokers.rabbitmq.leases import HeldLease, LeaseTable
from godwit.brokers.rabbitmq.ledger.file import LedgerFile
from godwit.brokers.rabbitmq.ledger.pull import Lease, Taken, Taker
from godwit.brokers.rabbitmq.ledger.settle import Burial, Return
from godwit.brokers.rabbitmq.ledger.transaction import LedgerTransaction
from godwit.brokers.rabbitmq.maintain import LeaseReaper
from godwit.brokers.rabbitmq.resend import Resender
from godwit.core.clock import Clock
from godwit.core.journal.vocabulary import Event
from godwit.core.queues import FlowControl


class RabbitPuller:
    """Pulls for one broker."""

    def __init__(
        self,
        lease_table: LeaseTable,
        ledger: LedgerFile,
        resender: Resender,
        reaper: LeaseReaper,
        clock: Clock,
        *,
        tokens: Iterator[str],
        body: bool,
    ) -> None:
        self.known: dict[Place, FlowControl] = {}
        """Places that were there when last asked for, and how much of them may be leased."""
        self._lease_table, self._ledger, self._resender, self._reaper = lease_table, ledger, resender, reaper
        self._clock, self._tokens, self._body = clock, tokens, body

    async def check(self, place: Place) -> None:
        """Refuse a place that does not exist."""
        if place not in self.known:

            def step(tx: LedgerTransaction) -> FlowControl:
                return tx.queue(place[0]).group(place[1]).spec.flow_control

            self.known[place] = await self._ledger.step(step)

    def forget(self, places: Sequence[Place] | None) -> None:
        """Ask the ledger again about these places; None: about all."""
        for place in list(self.known) if places is None else places:
            self.known.pop(place, None)

    async def pull(
        self, consumer: GroupConsumer, *, worker: str, limit: int, length_ms: int, max_bytes: int | None
    ) -> list[Delivery]:
        """Look after the place, then lease what is there now."""
        await self._reaper.maintain(consumer.place)
        deliveries: list[Delivery] = []
        async with consumer.lock:
            limit = min(limit, await self._room(consumer.place))
            while len(deliveries) < limit:
                fetched = await consumer.fetch(limit - len(deliveries))
                if not fetched:
                    break
                came, more = await self._judge(consumer, fetched, worker, limit - len(deliveries), length_ms, max_bytes)
                deliveries += came
                if not more or max_bytes is not None:
                    break
        return deliveries

    async def _room(self, place: Place) -> int:
        """Return how many may be leased before flow control says no; the ledger has the last word."""
        flow = self.known.get(place, FlowControl())
        if flow.max_messages is None:
            return MAX_PULL

        def step(tx: LedgerTransaction) -> int:
            return int(tx.queue(place[0]).group(place[1]).leased)

        return max(flow.max_messages - await self._ledger.step(step), 0)

    async def _judge(
        self,
        consumer: GroupConsumer,
        fetched: list[tuple[Channel, Incoming]],
        worker: str,
        limit: int,
        length_ms: int,
        max_bytes: int | None,
    ) -> tuple[list[Delivery], bool]:
        """Return what may be delivered, and whether it is worth fetching more in place of what may not."""
        queue, group = consumer.place
        now_ms = self._clock.now_ms()
        channels: dict[int, tuple[Channel, Incoming]] = {}
        arrived: list[InboundMessage] = []
        for channel, incoming in fetched:
            inbound = unpack(incoming, queue, now_ms)
            channels[id(inbound)] = (channel, incoming)
            arrived.append(inbound)

        def step(tx: LedgerTransaction) -> Taken:
            taker = Taker(
                tx,
                queue,
                group,
                worker=worker,
                lease_ms=length_ms,
                limit=limit,
                max_bytes=max_bytes,
                tokens=self._tokens,
                body=self._body,
            )
            return taker.take(arrived)

        try:
            taken = await self._ledger.step(step)
        except BaseException:
            self.known.pop(consumer.place, None)
            consumer.put_back(fetched)
            raise
        if taken.left:
            consumer.put_back([channels[id(inbound)] for inbound in taken.left])
        for inbound in taken.dropped:
            channel, incoming = channels[id(inbound)]
            if channel.alive:
                channel.ack([incoming.tag])
        await self._send_on(consumer, taken, channels)
        return self._hold(consumer, taken, channels), not taken.left and len(taken.leases) < len(fetched)

    def _hold(
        self, consumer: GroupConsumer, taken: Taken, channels: dict[int, tuple[Channel, Incoming]]
    ) -> list[Delivery]:
        deliveries = []
        self._reaper.begin(consumer.place)
        for lease in taken.leases:
            channel, _ = channels[id(lease.inbound)]
            if channel is consumer.channel:
                consumer.held += 1
            ack_id = self._lease_table.add(HeldLease(lease, channel, consumer))
            deliveries.append(
                Delivery(
                    ack_id,
                    lease.queue,
                    lease.group,
                    lease.inbound.envelope,
                    lease.seq,
                    lease.attempt,
                    lease.failures,
                    lease.crashes,
                    lease.errors,
                    lease.ready_at_ms,
                    lease.leased_at_ms,
                    lease.deadline_ms,
                )
            )
        return deliveries

    async def _send_on(
        self, consumer: GroupConsumer, taken: Taken, channels: dict[int, tuple[Channel, Incoming]]
    ) -> None:
        """Send away what came too early, what has to wait after a silence, and what is dead."""

        def held(lease: Lease) -> HeldLease:
            consumer.held += 1  # the release that follows counts it out
            return HeldLease(lease, channels[id(lease.inbound)][0], consumer)

        returns: list[tuple[HeldLease, Return]] = [
            (held(lease), Return(lease, None, lease.inbound.header.ready_at_ms)) for lease in taken.early
        ]
        returns += [
            (held(lease), Return(lease, Event.LEASE_EXPIRED, taken.now_ms + delay_ms))
            for lease, delay_ms in taken.silent
        ]
        burials = [(held(lease), Burial(lease, kind)) for lease, kind in taken.dead]
        await self._resender.carry_out(returns, burials, taken.now_ms)
