"""A subscription: an engine queue of its own with a single group, its leases, and what it counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import islice, takewhile
from typing import Any, Final, cast

import msgspec

from godwit.brokers.contract import Ack, Delivery, Nack
from godwit.brokers.memory.engine import MemoryEngine
from godwit.core.clock import from_ms, milliseconds
from godwit.core.errors import InvalidAckId
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.shards import shard_name
from godwit.core.logs import get_logger
from godwit.core.names import DEFAULT_GROUP, AckId, queue_name
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.messagequeue.envelopes import TopicEnvelope, ack_id_of, address, unwrap
from godwit.messagequeue.types import InternalMessage, MessageLease, SubscriptionMetadata, SubscriptionStats

MAX_MESSAGES: Final = 10_000
MAX_BYTES: Final = 100 << 20
JOURNAL_BYTES: Final = 64 << 10
"""This engine's journal is never read; it only must not grow."""

EXPIRED_ACK_IDS: Final = MAX_MESSAGES
"""Expired ack ids remembered at most, the newest ones."""

FORGET_ACK_IDS_AFTER_MS: Final = milliseconds(timedelta(minutes=10))
WARN_AGAIN_AFTER_MS: Final = milliseconds(timedelta(minutes=1))

_log = get_logger(__name__)


class Subscription:
    """The messages of one subscription. The facade's lock guards it; `now_ms` is the instant of the call."""

    def __init__(self, metadata: SubscriptionMetadata, engine: MemoryEngine) -> None:
        self.metadata = metadata
        self.name = queue_name(metadata.name)
        self.leases: dict[AckId, Delivery] = {}
        self._extensions: dict[AckId, tuple[int, int]] = {}
        """Deadline and number of extensions of the leases that have any."""
        self._expired_ack_ids: dict[str, int] = {}
        """When each was found expired, oldest first; only to tell a late settlement from a wrong ack id."""
        self.undeliverable: deque[TopicEnvelope] = deque()
        self._undeliverable_bytes = 0
        self._dropped = self._past_retention = self.dead_lettered = 0
        self._warned_ms: dict[str, int] = {}
        self._engine = engine
        options = metadata.options
        self._ack_deadline_ms = options.ack_deadline_seconds * 1_000
        self._retention_ms = milliseconds(options.message_retention_duration)
        self._backoff = options.retry_policy.rule if options.retry_policy is not None else None
        policy = options.dead_letter_policy
        self.dead_letter_topic = policy.dead_letter_topic if policy is not None else None
        self._spec = QueueSpec(
            name=self.name,
            lanes=1,
            max_delayed=None,
            dedup_window=timedelta(0),
            journal_keep=timedelta(0),
            journal_max_bytes=JOURNAL_BYTES,
        )
        group = GroupSpec(
            name=DEFAULT_GROUP,
            message_ordering=options.message_ordering,
            flow_control=options.flow_control,
            max_crashes=None,
            max_delivery_attempts=policy.max_delivery_attempts if policy is not None else None,
            backoff=self._backoff,
            forgive_outages=False,
        )
        engine.declare(self._spec, [group])

    def close(self) -> None:
        """Clear everything it holds."""
        self._engine.remove(self.name)
        del self._engine.shards[shard_name(self.name)]
        self.leases.clear()
        self._extensions.clear()
        self._expired_ack_ids.clear()
        self.undeliverable.clear()
        self._undeliverable_bytes = 0

    def detach(self) -> None:
        """Clear everything and take no more messages, but stay known."""
        self.close()
        self.metadata = msgspec.structs.replace(self.metadata, detached=True)

    # In

    def has_room(self, size: int) -> bool:
        """Say whether a message of this size would be accepted."""
        stats = self.stats()
        return stats.messages < MAX_MESSAGES and stats.bytes + size <= MAX_BYTES

    def accept(self, parcels: Iterable[TopicEnvelope], now_ms: int) -> None:
        """Take in copies as far as there is room; the others are dropped, counted and warned of."""
        stats = self.stats()
        messages, size = stats.messages, stats.bytes
        expires_at_ms = now_ms + self._retention_ms
        accepted = []
        dropped = 0
        for envelope in parcels:
            if messages >= MAX_MESSAGES or size + envelope.size > MAX_BYTES:
                dropped += 1
                continue
            messages, size = messages + 1, size + envelope.size
            accepted.append(address(envelope, self.name, expires_at_ms))
        self._engine.publish(accepted)
        if dropped:
            self._dropped += dropped
            self._warn("subscription is full, messages are dropped", now_ms, messages=messages, bytes=size)
        self._trim(now_ms)

    # Out

    def pull(self, limit: int, now_ms: int) -> list[InternalMessage]:
        """Lease up to `limit` messages."""
        deliveries = self._engine.pull(self.name, DEFAULT_GROUP, worker="", limit=limit, lease_ms=self._ack_deadline_ms)
        self.leases.update((delivery.ack_id, delivery) for delivery in deliveries)
        self._trim(now_ms)
        return [unwrap(delivery) for delivery in deliveries]

    def held(self, ack_id: str, now_ms: int) -> Delivery:
        """Return the delivery that `ack_id` settles."""
        delivery = self.leases.get(AckId(ack_id.rpartition("-")[0]))
        if delivery is not None and ack_id_of(delivery) == ack_id:
            return delivery
        if ack_id in self._expired_ack_ids:
            late_ms = now_ms - self._expired_ack_ids[ack_id]
            self._warn("settlement came after the ack deadline", now_ms, late_ms=late_ms)
        raise InvalidAckId(ack_id)

    def ack(self, delivery: Delivery, now_ms: int) -> None:
        """Be done with a message."""
        self._end(delivery.ack_id)
        self._engine.settle([Ack(delivery.ack_id)])
        self._trim(now_ms)

    def nack(self, delivery: Delivery, now_ms: int) -> None:
        """Let a message wait again, for as long as the retry policy says."""
        self._end(delivery.ack_id)
        delay = self._backoff.delay(attempt=delivery.attempt) if self._backoff is not None else timedelta(0)
        self._engine.settle([Nack(delivery.ack_id, delay)])
        self._trim(now_ms)

    def extend(self, delivery: Delivery, seconds: int, now_ms: int) -> None:
        """Let a lease end `seconds` from now."""
        self._engine.extend([delivery.ack_id], seconds * 1_000)
        _, extensions = self._extensions.get(delivery.ack_id, (0, 0))
        self._extensions[delivery.ack_id] = (now_ms + seconds * 1_000, extensions + 1)
        self._trim(now_ms)

    def _end(self, ack_id: AckId) -> None:
        del self.leases[ack_id]
        self._extensions.pop(ack_id, None)

    # Time

    def maintain(self, now_ms: int) -> None:
        """Do what time asks for, and remember whose leases ran out."""
        for ack_id in self._engine.maintain_group(self.name, DEFAULT_GROUP):
            self._expired_ack_ids[ack_id_of(self.leases[ack_id])] = now_ms
            self._end(ack_id)
        too_many = len(self._expired_ack_ids) - EXPIRED_ACK_IDS
        if too_many > 0:
            for expired in list(islice(self._expired_ack_ids, too_many)):
                del self._expired_ack_ids[expired]
        self._trim(now_ms)

    def next_due_ms(self) -> int | None:
        """Return when time will ask for something, or None."""
        return self._engine.next_due_ms(self.name, DEFAULT_GROUP)

    def forget_ack_ids(self, now_ms: int) -> None:
        """Forget ack ids that expired too long ago."""
        until_ms = now_ms - FORGET_ACK_IDS_AFTER_MS
        past = takewhile(lambda ack_id: self._expired_ack_ids[ack_id] <= until_ms, self._expired_ack_ids)
        for ack_id in list(past):
            del self._expired_ack_ids[ack_id]

    # Dead letters

    def collect_dead_letters(self) -> bool:
        """Take over what the engine gave up on; say whether any of it is to be moved.

        Without a policy it can only be what outlived its retention, which is dropped.
        """
        dead = self._engine.group_stats(self.name, DEFAULT_GROUP).dead
        if not dead:
            return False
        letters = self._engine.letters(self.name, None, None, dead)
        self._engine.discard([letter.id for letter in letters])
        self._past_retention += sum(letter.kind is FailureKind.EXPIRED for letter in letters)
        if self.dead_letter_topic is not None:
            for letter in letters:
                self.undeliverable.append(cast("TopicEnvelope", letter.envelope))
                self._undeliverable_bytes += letter.envelope.size
        return bool(self.undeliverable)

    def move_dead_letters(self, targets: Sequence[Subscription], now_ms: int) -> None:
        """Hand dead letters over, in order, as long as any target has room; warn when some stay."""
        while self.undeliverable:
            envelope = self.undeliverable[0]
            if not any(target.has_room(envelope.size) for target in targets):
                self._warn(
                    "dead letters stay, their topic takes none",
                    now_ms,
                    dead_letter_topic=self.dead_letter_topic,
                    undeliverable=len(self.undeliverable),
                )
                return
            for target in targets:
                target.accept([envelope], now_ms)
            self.undeliverable.popleft()
            self._undeliverable_bytes -= envelope.size
            self.dead_lettered += 1

    # Seen from outside

    def stats(self) -> SubscriptionStats:
        """Say how much it holds, at the same cost at any depth."""
        counted = SubscriptionStats(
            expired_ack_ids=len(self._expired_ack_ids),
            dropped=self._dropped,
            past_retention=self._past_retention,
            dead_lettered=self.dead_lettered,
        )
        if self.metadata.detached:
            return counted
        group = self._engine.group_stats(self.name, DEFAULT_GROUP)
        return msgspec.structs.replace(
            counted,
            waiting=group.depth - group.leased,
            in_flight_messages=group.leased,
            in_flight_bytes=group.leased_bytes,
            undeliverable=len(self.undeliverable),
            bytes=group.bytes + self._undeliverable_bytes,
        )

    def open_leases(self) -> Iterator[MessageLease]:
        """Give the leases, oldest first."""
        for ack_id, delivery in self.leases.items():
            deadline_ms, extensions = self._extensions.get(ack_id, (delivery.lease_until_ms, 0))
            yield MessageLease(
                message=unwrap(delivery),
                ack_id=ack_id_of(delivery),
                subscription=self.name,
                deadline=from_ms(deadline_ms),
                deadline_extensions=extensions,
            )

    def _warn(self, event: str, now_ms: int, **fields: Any) -> None:
        """Log a warning, each kind at most once a minute."""
        if now_ms - self._warned_ms.get(event, -WARN_AGAIN_AFTER_MS) >= WARN_AGAIN_AFTER_MS:
            self._warned_ms[event] = now_ms
            _log.warning(event, subscription=self.name, **fields)

    def _trim(self, now_ms: int) -> None:
        shard = self._engine.shards[shard_name(self.name)]
        if shard.size > JOURNAL_BYTES:
            shard.trim(self._spec, now_ms)
