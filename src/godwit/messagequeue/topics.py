"""What is registered, and what time does to it: the part of the facade that knows nothing of threads.

A topic is a name and a list of subscriptions; messages live only in subscriptions. `catch_up` begins every call: it
does what time asked for since the last one, so that no lease outlives its deadline by a call.
"""

from __future__ import annotations

from godwit.brokers.contract import Delivery
from godwit.brokers.memory.engine import MemoryEngine
from godwit.core.clock import Clock
from godwit.core.errors import InvalidAckId, SubscriptionNotFound, TopicNotFound
from godwit.core.journal.queue_time import ClockLag, advanced
from godwit.messagequeue.due_times import DueTimes
from godwit.messagequeue.subscription import Subscription
from godwit.messagequeue.types import SubscriptionMetadata, TopicMetadata


class Instant:
    """The engine's clock: it stands still during a call and never goes back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now_ms = clock.now_ms()
        self._lag: ClockLag | None = None

    def move(self) -> int:
        """Take over the time of the real clock and return it."""
        self._now_ms, self._lag = advanced(self._now_ms, self._clock.now_ms(), self._lag)
        return self._now_ms

    def now_ms(self) -> int:
        """Return the instant of the present call."""
        return self._now_ms


class Topic:
    """A name that subscriptions listen to."""

    def __init__(self, metadata: TopicMetadata) -> None:
        self.metadata = metadata
        self.subscriptions: dict[str, Subscription] = {}


class Topics:
    """Topics, subscriptions and their care."""

    def __init__(self, *, clock: Clock, clean_up_every_ms: int) -> None:
        self._instant = Instant(clock)
        self.engine = MemoryEngine(clock=self._instant)
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self._due_times = DueTimes()
        self._undeliverable: set[str] = set()
        """Subscriptions whose dead letters have not been forwarded."""
        self._clean_up_every_ms = clean_up_every_ms
        self._cleaned_up_ms = self._instant.now_ms()

    # Finding things

    def topic(self, name: str) -> Topic:
        """Return a topic that must exist."""
        topic = self.topics.get(name)
        if topic is None:
            raise TopicNotFound(name)
        return topic

    def subscription(self, name: str) -> Subscription:
        """Return a subscription that must exist."""
        subscription = self.subscriptions.get(name)
        if subscription is None:
            raise SubscriptionNotFound(name)
        return subscription

    def held(self, ack_id: str | None, now_ms: int) -> tuple[Subscription, Delivery]:
        """Return the lease an ack id stands for; None, on a message never pulled, stands for none."""
        subscription = self.subscriptions.get(ack_id.partition("#")[0]) if isinstance(ack_id, str) else None
        if subscription is None:
            raise InvalidAckId(str(ack_id))
        return subscription, subscription.held(str(ack_id), now_ms)

    @property
    def leases_exist(self) -> bool:
        """Whether anything is in flight."""
        return any(subscription.leases for subscription in self.subscriptions.values())

    # Coming and going

    def add(self, metadata: SubscriptionMetadata) -> None:
        """Create a subscription of a topic that exists; dead letters that waited for one come with the next call."""
        subscription = Subscription(metadata, self.engine)
        self.subscriptions[metadata.name] = self.topics[metadata.topic].subscriptions[metadata.name] = subscription

    def remove_topic(self, name: str) -> None:
        """Remove a topic; its subscriptions lose all messages and stay, detached for good."""
        topic = self.topic(name)
        del self.topics[name]
        for subscription in topic.subscriptions.values():
            self._forget(subscription)
            subscription.detach()

    def remove_subscription(self, name: str) -> None:
        """Remove a subscription with all it holds."""
        subscription = self.subscription(name)
        del self.subscriptions[name]
        self._forget(subscription)
        if not subscription.metadata.detached:
            del self.topics[subscription.metadata.topic].subscriptions[name]
            subscription.close()

    def _forget(self, subscription: Subscription) -> None:
        self._due_times.cancel(subscription.name)
        self._undeliverable.discard(subscription.name)

    # Time

    def catch_up(self) -> int:
        """Do what time asked for since the last call; return the instant of this one."""
        now_ms = self._instant.move()
        for name in self._due_times.due(now_ms):
            self.subscriptions[name].maintain(now_ms)
            self.follow_up(self.subscriptions[name], now_ms)
        if self._undeliverable:
            self._move_dead_letters(now_ms)
        if now_ms - self._cleaned_up_ms >= self._clean_up_every_ms:
            self._cleaned_up_ms = now_ms
            for subscription in self.subscriptions.values():
                subscription.forget_ack_ids(now_ms)
        return now_ms

    def follow_up(self, subscription: Subscription, now_ms: int) -> None:
        """Take care of what a step on a subscription gave up on, and plan its next care."""
        if subscription.collect_dead_letters():
            self._undeliverable.add(subscription.name)
            self._move_dead_letters(now_ms)
        self.plan(subscription)

    def plan(self, subscription: Subscription) -> None:
        """Note when a subscription next needs care."""
        self._due_times.plan(subscription.name, subscription.next_due_ms())

    def _move_dead_letters(self, now_ms: int) -> None:
        for name in list(self._undeliverable):
            source = self.subscriptions[name]
            topic = self.topics.get(source.dead_letter_topic or "")
            targets = list(topic.subscriptions.values()) if topic is not None else []
            source.move_dead_letters(targets, now_ms)
            for target in targets:
                self.plan(target)
            if not source.undeliverable:
                self._undeliverable.discard(name)
