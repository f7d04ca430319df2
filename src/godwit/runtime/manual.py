"""Pulling and settling by hand, for applications that run no worker; counted like a worker's deliveries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random

import msgspec

from godwit.brokers.contract import MAX_LEASE, Ack, Delivery, GiveUp, Nack, Transport
from godwit.core.clock import Clock, milliseconds
from godwit.core.errors import InvalidAckId, MessageNotHeld
from godwit.core.failures.judgement import Permanent, Retry, judge
from godwit.core.failures.retry import RetryPolicy
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.telemetry.metrics import QueueMetricsCollector

PolicyOf = Callable[[QueueName, GroupName], RetryPolicy]


class ManualDeliveries:
    """What one manager pulled and has not settled."""

    def __init__(
        self,
        broker: Transport,
        *,
        worker: str,
        policy: PolicyOf,
        metrics: QueueMetricsCollector,
        clock: Clock,
        random: Random,
    ) -> None:
        self._broker, self._worker, self._policy, self._metrics = broker, worker, policy, metrics
        self._clock, self._random = clock, random
        self._held: dict[tuple[MessageId, GroupName], Delivery] = {}

    async def pull(
        self, queue: QueueName, group: GroupName, *, limit: int, lease: timedelta, wait: timedelta
    ) -> list[Delivery]:
        """Lease up to `limit` messages."""
        deliveries = await self._broker.pull(queue, group, worker=self._worker, limit=limit, lease=lease, wait=wait)
        self._forget_ended()
        self._held.update({(delivery.message_id, delivery.group): delivery for delivery in deliveries})
        if deliveries:
            waits = [(delivery.delivered_at_ms - delivery.ready_at_ms) / 1000 for delivery in deliveries]
            self._metrics.delivered(queue, group, waits, sum(delivery.attempt > 1 for delivery in deliveries))
        return deliveries

    async def acknowledge(self, message: Delivery | MessageId, group: str | None) -> None:
        """Settle as done."""
        delivery = self._taken(message, group)
        await self._settle(delivery, Ack(delivery.ack_id))
        self._metrics.acked(delivery.queue, delivery.group)

    async def reject(self, message: Delivery | MessageId, reason: str, *, requeue: bool, group: str | None) -> None:
        """Settle as failed: tried again as the retry policy says, or given up."""
        delivery = self._taken(message, group)
        judgement = judge(
            Retry(reason) if requeue else Permanent(reason),
            failures=delivery.failures,
            policy=self._policy_of(delivery),
            now_ms=self._clock.now_ms(),
            jitter=self._random.random(),
        )
        if judgement.delay is None:
            await self._settle(delivery, GiveUp(delivery.ack_id, judgement.kind, judgement.error))
            self._metrics.dead(delivery.queue, delivery.group, 1, judgement.kind)
        else:
            await self._settle(delivery, Nack(delivery.ack_id, judgement.delay, judgement.error))
            self._metrics.nacked(delivery.queue, delivery.group)

    def _policy_of(self, delivery: Delivery) -> RetryPolicy:
        """Return a message's own policy, or that of its group, also when the message cannot be read."""
        try:
            own = delivery.open().retry_policy
        except msgspec.DecodeError:
            own = None
        return own or self._policy(delivery.queue, delivery.group)

    async def _settle(self, delivery: Delivery, settlement: Ack | Nack | GiveUp) -> None:
        key = (delivery.message_id, delivery.group)
        try:
            refused = await self._broker.settle([settlement])
        except BaseException:  # cancelled, or the broker is away: the caller may try again
            self._held.setdefault(key, delivery)
            raise
        if refused:
            self._metrics.ack_refused(delivery.queue, delivery.group)
            raise InvalidAckId(delivery.ack_id)

    def _taken(self, message: Delivery | MessageId, group: str | None) -> Delivery:
        """Return the delivery meant, and no longer hold it."""
        if isinstance(message, Delivery):
            self._held.pop((message.message_id, message.group), None)
            return message
        found = [key for key in self._held if key[0] == message and group in (None, key[1])]
        if len(found) != 1:
            raise MessageNotHeld(message)
        return self._held.pop(found[0])

    def _forget_ended(self) -> None:
        """Drop deliveries whose leases ended long ago: no call settles them any more."""
        before_ms = self._clock.now_ms() - milliseconds(MAX_LEASE)
        for key in [key for key, delivery in self._held.items() if delivery.lease_until_ms < before_ms]:
            del self._held[key]
