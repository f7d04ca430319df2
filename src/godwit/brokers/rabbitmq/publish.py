"""Publishing: numbered in the ledger, sent in windows with confirms, written down when the server has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from godwit.brokers.chunks import publish_chunks
from godwit.brokers.contract import Receipt
from godwit.brokers.rabbitmq.amqp.channel import CONFIRMED, UNROUTABLE
from godwit.brokers.rabbitmq.amqp.frames import Outgoing
from godwit.brokers.rabbitmq.amqp.reconnect import ReconnectingConnection
from godwit.brokers.rabbitmq.layout.delays import hold_address
from godwit.brokers.rabbitmq.layout.message import GodwitHeader, header_of, pack, routing_key
from godwit.brokers.rabbitmq.layout.topology import Names
from godwit.brokers.rabbitmq.ledger import publish
from godwit.brokers.rabbitmq.ledger.file import LedgerFile
from godwit.brokers.rabbitmq.ledger.publish import Numbered, PublishPlan
from godwit.brokers.rabbitmq.ledger.transaction import LedgerTransaction
from godwit.core import fault_points
from godwit.core.errors import BrokerBusy, GodwitError, NotRouted, PartialPublish, QueueFull
from godwit.core.messages.envelope import Envelope
from godwit.core.names import QueueName

AFTER_CONFIRM: Final = "rabbitmq.publish.confirmed"
PAUSE_SECONDS: Final = 0.1
"""Between attempts at a queue that refuses though it is not full: an election takes a few of them."""


class RabbitPublisher:
    """Publishes for one broker."""

    def __init__(
        self,
        link: ReconnectingConnection,
        ledger: LedgerFile,
        names: Names,
        *,
        body: bool,
        redeclare: Callable[[QueueName], Awaitable[None]],
        waiting: Callable[[str], Awaitable[int]],
    ) -> None:
        self._link, self._ledger, self._names, self._body = link, ledger, names, body
        self._redeclare, self._waiting = redeclare, waiting

    async def publish(self, envelopes: Sequence[Envelope]) -> list[Receipt]:
        """Check the whole call, then store it chunk by chunk."""
        chunks = list(publish_chunks(envelopes))
        if len(chunks) > 1:
            await self._ledger.step(lambda tx: publish.check_addresses(tx, envelopes))
        receipts: list[Receipt] = []
        for chunk in chunks:
            try:
                receipts += await self.chunk(chunk)
            except GodwitError as error:
                if not receipts:
                    raise
                raise PartialPublish(tuple(receipt.id for receipt in receipts), str(error)) from error
        return receipts

    async def chunk(self, chunk: Sequence[Envelope], *, moved: bool = False) -> list[Receipt]:
        """Store one chunk; what is `moved` from another queue is neither deduplicated nor dropped."""

        def reserve(tx: LedgerTransaction) -> PublishPlan:
            publish.check_addresses(tx, chunk)
            return publish.reserve(tx, chunk, moved=moved)

        plan = await self._ledger.step(reserve)
        try:
            await self._send(plan)
        except BaseException:
            self._ledger.post(lambda tx: publish.withdrawn(tx, plan))
            raise
        fault_points.fault_point(AFTER_CONFIRM)
        late = await self._ledger.step(lambda tx: publish.accepted(tx, plan, body=self._body))
        fresh = {id(one.envelope) for one in plan.fresh if one.seq not in late}
        receipts = []
        for envelope in chunk:
            receipts.append(Receipt(envelope.id, id(envelope) in fresh))
            fresh.discard(id(envelope))
        return receipts

    async def _send(self, plan: PublishPlan) -> None:
        """Send until everything is confirmed; a refusal is repeated unless the queue is really full."""
        messages = [message for one in plan.fresh for message in self._messages(plan, one)]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._link.address.publish_seconds
        redeclared = False
        while messages:
            outcomes = await self._link.send(messages)
            lost = [message for message, outcome in zip(messages, outcomes, strict=True) if outcome == UNROUTABLE]
            messages = [message for message, outcome in zip(messages, outcomes, strict=True) if outcome != CONFIRMED]
            if lost and redeclared:
                raise NotRouted(lost[0].message_id, lost[0].type, lost[0].exchange or lost[0].routing_key)
            if lost:
                # A queue may have been removed on the server: declare it again and send once more what led nowhere.
                await self._redeclare(plan.queue)
                redeclared = True
            elif messages:
                await self._refused(plan, deadline - loop.time())

    async def _refused(self, plan: PublishPlan, left: float) -> None:
        """Tell a full queue from one that has no leader for the moment."""
        most = self._link.address.max_length
        for group in plan.groups:
            if await self._waiting(self._names.group(plan.queue, group)) >= most:
                raise QueueFull(plan.queue, group, "max_length", most)
        if left <= 0:
            raise BrokerBusy("publish", self._link.address.publish_seconds)
        await asyncio.sleep(PAUSE_SECONDS)
        await self._link.renew()

    def _messages(self, plan: PublishPlan, one: Numbered) -> list[Outgoing]:
        """Return what is sent for one message: once through the exchange, or once for each group it is for."""
        envelope = one.envelope
        targets = plan.targets(one)
        delay_ms = one.ready_at_ms - plan.now_ms
        names = self._names
        if delay_ms <= 0 and len(targets) == len(plan.groups) and targets:
            expiration = max(one.expiry_ms - plan.now_ms, 0) if one.expiry_ms else None
            key = routing_key(envelope)
            return [
                pack(envelope, self._header(plan, one, None), names.exchange(plan.queue), key, expiration_ms=expiration)
            ]
        messages = []
        for group in targets:
            header = self._header(plan, one, group)
            if delay_ms > 0:
                address = hold_address(delay_ms, names.mark(plan.queue, group))
                messages.append(pack(envelope, header, *address))
            else:
                expiration = max(one.expiry_ms - plan.now_ms, 0) if one.expiry_ms else None
                messages.append(pack(envelope, header, "", names.group(plan.queue, group), expiration_ms=expiration))
        return messages

    @staticmethod
    def _header(plan: PublishPlan, one: Numbered, group: str | None) -> GodwitHeader:
        return header_of(
            one.envelope,
            epoch=plan.epoch,
            seq=one.seq,
            ready_at_ms=one.ready_at_ms,
            expiry_ms=one.expiry_ms,
            group=group,
            bypass=plan.moved,
        )
