"""Sending copies anew: to their queue, to wait, or to the dead letter queue. The copy is safe before the old one goes.

Order: publish with confirm, write the ledger, acknowledge the old copy. A crash in between leaves two copies, never
none; the ledger knows which is the newer one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from godwit.brokers.rabbitmq.amqp.channel import CONFIRMED, REFUSED
from godwit.brokers.rabbitmq.amqp.frames import Outgoing
from godwit.brokers.rabbitmq.amqp.reconnect import ReconnectingConnection
from godwit.brokers.rabbitmq.layout.delays import hold_address
from godwit.brokers.rabbitmq.layout.message import GodwitHeader, pack
from godwit.brokers.rabbitmq.layout.topology import DEAD_KEY, Names
from godwit.brokers.rabbitmq.leases import HeldLease
from godwit.brokers.rabbitmq.ledger import settle
from godwit.brokers.rabbitmq.ledger.file import LedgerFile
from godwit.brokers.rabbitmq.ledger.pull import Lease
from godwit.brokers.rabbitmq.ledger.settle import Burial, Return
from godwit.core.errors import BrokerBusy, NotRouted

PAUSE_SECONDS: Final = 0.1
FULL_PAUSE_MS: Final = 1_000
"""A copy that finds its queue full waits so long before it tries again."""


class Resender:
    """Carries out returns and burials."""

    def __init__(self, link: ReconnectingConnection, ledger: LedgerFile, names: Names) -> None:
        self._link, self._ledger, self._names = link, ledger, names

    def copy(self, lease: Lease, ready_at_ms: int, now_ms: int) -> Outgoing:
        """Return a copy that is ready at a time, with the lease's counters on it."""
        header = self._header(lease, ready_at_ms)
        delay_ms = ready_at_ms - now_ms
        if delay_ms > 0:
            return pack(
                lease.inbound.envelope, header, *hold_address(delay_ms, self._names.mark(lease.queue, lease.group))
            )
        expiration = max(header.expiry_ms - now_ms, 0) if header.expiry_ms else None
        key = self._names.group(lease.queue, lease.group)
        return pack(lease.inbound.envelope, header, "", key, expiration_ms=expiration)

    def letter(self, burial: Burial, now_ms: int) -> Outgoing:
        """Return a copy for the dead letter queue."""
        lease = burial.lease
        header = msgspec.structs.replace(self._header(lease, lease.ready_at_ms), kind=burial.kind, dead_at_ms=now_ms)
        return pack(lease.inbound.envelope, header, self._names.dlx(lease.queue), DEAD_KEY)

    @staticmethod
    def _header(lease: Lease, ready_at_ms: int) -> GodwitHeader:
        return msgspec.structs.replace(
            lease.inbound.header,
            epoch=lease.epoch,
            seq=lease.seq,
            queue=lease.queue,
            turn=lease.turn + 1,
            group=lease.group,
            ready_at_ms=ready_at_ms,
            attempt=lease.attempt,
            failures=lease.failures,
            crashes=lease.crashes,
            errors=lease.errors,
        )

    async def carry_out(
        self, returns: Sequence[tuple[HeldLease, Return]], burials: Sequence[tuple[HeldLease, Burial]], now_ms: int
    ) -> list[Lease]:
        """Send, write down, acknowledge; return the leases that another worker had by then."""
        if not returns and not burials:
            return []
        sent = [self.copy(one.lease, one.ready_at_ms, now_ms) for _, one in returns]
        sent += [self.letter(one, now_ms) for _, one in burials]
        await self.deliver(sent)
        late = await self._ledger.step(
            lambda tx: settle.returned(tx, [one for _, one in returns]) + settle.buried(tx, [one for _, one in burials])
        )
        for held, _ in (*returns, *burials):
            held.release()
        return late

    async def deliver(self, messages: Sequence[Outgoing]) -> None:
        """Publish until everything is confirmed; what finds its queue full takes the way through a hold."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._link.address.publish_seconds
        while messages:
            outcomes = await self._link.send(messages)
            refused = []
            for message, outcome in zip(messages, outcomes, strict=True):
                if outcome == REFUSED:
                    refused.append(self._later(message))
                elif outcome != CONFIRMED:
                    raise NotRouted(message.message_id, message.type, message.exchange or message.routing_key)
            messages = refused
            if messages:
                if loop.time() > deadline:
                    raise BrokerBusy("publish", self._link.address.publish_seconds)
                await asyncio.sleep(PAUSE_SECONDS)
                await self._link.renew()

    def _later(self, message: Outgoing) -> Outgoing:
        if message.exchange:
            return message  # a hold or a dead letter exchange is never full: it has no leader for the moment
        mark = self._names.mark_of(message.routing_key)
        exchange, key = hold_address(FULL_PAUSE_MS, mark)
        return message._replace(exchange=exchange, routing_key=key, expiration_ms=None)
