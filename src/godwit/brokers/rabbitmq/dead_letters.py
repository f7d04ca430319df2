"""The dead letter queues: taken over into the ledger, and fed into queues declared for them."""

from __future__ import annotations

import msgspec

from godwit.brokers.contract import PUBLISH_CHUNK, LetterId
from godwit.brokers.rabbitmq.amqp.errors import ServerRefused
from godwit.brokers.rabbitmq.amqp.frames import Incoming
from godwit.brokers.rabbitmq.amqp.reconnect import ReconnectingConnection
from godwit.brokers.rabbitmq.layout.message import deaths, unpack
from godwit.brokers.rabbitmq.layout.topology import Names
from godwit.brokers.rabbitmq.ledger import dead_letters
from godwit.brokers.rabbitmq.ledger.dead_letters import InboundLetter
from godwit.brokers.rabbitmq.ledger.file import LedgerFile
from godwit.brokers.rabbitmq.ledger.transaction import LedgerTransaction
from godwit.brokers.rabbitmq.publish import RabbitPublisher
from godwit.core.clock import Clock
from godwit.core.errors import QueueFull
from godwit.core.failures.failure import FailureKind
from godwit.core.names import GroupName, QueueName

REASONS = {
    "expired": FailureKind.EXPIRED,
    "delivery_limit": FailureKind.POISON,
    "rejected": FailureKind.PERMANENT,
    "maxlen": FailureKind.TRANSIENT,
}
"""Why a server dead-letters, in our words."""


class DeadLetterCollector:
    """Collects the letters of one broker's dead letter queues."""

    def __init__(
        self,
        link: ReconnectingConnection,
        ledger: LedgerFile,
        names: Names,
        publisher: RabbitPublisher,
        clock: Clock,
        *,
        body: bool,
    ) -> None:
        self._link, self._ledger, self._names, self._publisher = link, ledger, names, publisher
        self._clock, self._body = clock, body

    async def drain(self) -> int:
        """Take over what all dead letter queues hold; return how many deaths were news."""
        places = await self._ledger.step(lambda tx: {name: list(tx.queue(name).groups) for name in tx.names()})
        if not places:
            return 0
        connection = await self._link.connection()
        channel = await connection.channel()
        news = 0
        for queue, groups in places.items():
            by_name = {self._names.group(queue, group): group for group in groups}
            while True:
                try:
                    came = await channel.get(self._names.dlq(queue), PUBLISH_CHUNK)
                except ServerRefused:
                    # Another host's ledger may know queues that this server has not, or no longer.
                    channel = await connection.channel()
                    break
                if not came:
                    break
                found = [self._found(queue, by_name, one) for one in came]
                news += await self._ledger.step(
                    lambda tx, queue=queue, found=found: dead_letters.take_over(tx, queue, found, body=self._body),  # type: ignore[misc]
                    durable=True,
                )
                channel.ack([one.tag for one in came])
        await channel.close()
        return news

    def _found(self, queue: QueueName, by_name: dict[str, GroupName], incoming: Incoming) -> InboundLetter:
        inbound = unpack(incoming, queue, self._clock.now_ms())
        group, kind = inbound.header.group, inbound.header.kind
        if kind is None:
            # The server gave it up: it says from which queue, and why.
            kind = FailureKind.PERMANENT
            for death in deaths(incoming.properties.headers):
                if death.get("queue") in by_name:
                    group = by_name[death["queue"]]
                    kind = REASONS.get(str(death.get("reason")), FailureKind.PERMANENT)
                    break
        return InboundLetter(inbound, group, kind)

    async def feed(self) -> int:
        """Move dead letters into the queues declared for them, as far as there is room; return how many."""
        waiting = await self._ledger.step(lambda tx: dead_letters.to_feed(tx, PUBLISH_CHUNK))
        moved = 0
        for target, ids in waiting.items():
            moved += await self._feed(target, ids)
        return moved

    async def _feed(self, target: QueueName, ids: list[LetterId]) -> int:
        size, moved = len(ids), 0
        while ids and size:
            chosen = ids[:size]
            claimed, _ = await self._ledger.step(lambda tx, chosen=chosen: dead_letters.claim(tx, chosen))  # type: ignore[misc]
            envelopes = [
                msgspec.structs.replace(
                    one.stored.envelope, queue=target, group=None, deliver_at_ms=None, expires_at_ms=None
                )
                for one in claimed
            ]
            try:
                if envelopes:
                    await self._publisher.chunk(envelopes, moved=True)
            except BaseException as error:
                await self._ledger.step(lambda tx, claimed=claimed: dead_letters.unclaim(tx, claimed))  # type: ignore[misc]
                if not isinstance(error, QueueFull):
                    raise
                size //= 2
                continue

            def strike(tx: LedgerTransaction, claimed: list[dead_letters.Claimed] = claimed) -> int:
                return dead_letters.strike(tx, claimed, target)

            moved += await self._ledger.step(strike)
            ids = ids[size:]
        return moved
