"""The in-process broker: every call runs under one lock at one instant, after what time asked for before it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import timedelta
from typing import ClassVar, Final

from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms, milliseconds
from godwit.core.errors import AlreadyExistsError, InvalidName, InvalidSetting
from godwit.core.names import queue_name
from godwit.messagequeue.cleaner import Cleaner
from godwit.messagequeue.envelopes import NANOSECONDS_PER_MS, PUBLISH_STEP_NS, check_all, wrap
from godwit.messagequeue.topics import Topic, Topics
from godwit.messagequeue.types import (
    MAX_ACK_DEADLINE_SECONDS,
    InternalMessage,
    MessageLease,
    SubscriptionMetadata,
    SubscriptionOptions,
    SubscriptionStats,
    TopicMetadata,
    whole_number,
)

CLEAN_UP_EVERY: Final = timedelta(seconds=60)
DEFAULT_OPTIONS: Final = SubscriptionOptions()


class MessageQueue:
    """The process's message broker. All methods may be called from any thread."""

    _instance: ClassVar[MessageQueue | None] = None
    _instance_clock: ClassVar[Clock] = SYSTEM_CLOCK
    _instance_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, clean_up_every: timedelta = CLEAN_UP_EVERY) -> None:
        self._lock = threading.RLock()  # re-entrant: a log processor may look at the queue
        self._topics = Topics(clock=clock, clean_up_every_ms=milliseconds(clean_up_every))
        self._last_publish_ns = 0
        self._cleaner = Cleaner(self._tidy, interval_seconds=clean_up_every.total_seconds())

    @classmethod
    def get_instance(cls) -> MessageQueue:
        """Return the one instance of this process, made at the first call."""
        instance = cls._instance
        if instance is None:
            with cls._instance_lock:
                instance = cls._instance = cls._instance or cls(clock=cls._instance_clock)
        return instance

    @classmethod
    def reset_instance(cls, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Forget the instance and all it holds, for tests; the next one follows `clock`."""
        with cls._instance_lock:
            former, cls._instance, cls._instance_clock = cls._instance, None, clock
        if former is not None:
            former.close()

    def close(self) -> None:
        """Clear everything and end the clean-up thread."""
        with self._lock:
            for name in list(self._topics.subscriptions):
                self._topics.remove_subscription(name)
            self._topics.topics.clear()
            self._cleaner.retire()

    # Topics

    def register_topic(self, topic_name: str, metadata: TopicMetadata | None = None) -> None:
        """Create a topic; one that exists stays as it is."""
        _check_name("topic", topic_name)
        if metadata is not None and metadata.name != topic_name:
            raise InvalidSetting("metadata.name", metadata.name, f"the topic's name, {topic_name!r}")
        with self._lock:
            now_ms = self._topics.catch_up()
            known = self._topics.topics.get(topic_name)
            if known is None:
                self._topics.topics[topic_name] = Topic(
                    metadata or TopicMetadata(name=topic_name, created=from_ms(now_ms))
                )
            elif metadata is not None and metadata != known.metadata:
                raise AlreadyExistsError("Topic", topic_name, "created")

    def unregister_topic(self, topic_name: str) -> None:
        """Remove a topic; its subscriptions lose all messages and stay, detached for good."""
        with self._lock:
            self._topics.catch_up()
            self._topics.remove_topic(topic_name)

    def topic_exists(self, topic_name: str) -> bool:
        """Say whether a topic is registered."""
        with self._lock:
            self._topics.catch_up()
            return topic_name in self._topics.topics

    def get_topic(self, topic_name: str) -> TopicMetadata | None:
        """Return a topic's metadata, or None."""
        with self._lock:
            self._topics.catch_up()
            topic = self._topics.topics.get(topic_name)
            return topic.metadata if topic is not None else None

    def get_all_topics(self) -> list[TopicMetadata]:
        """List all topics, in the order they were registered."""
        with self._lock:
            self._topics.catch_up()
            return [topic.metadata for topic in self._topics.topics.values()]

    # Subscriptions

    def register_subscription(
        self, subscription_name: str, topic_name: str, options: SubscriptionOptions | None = DEFAULT_OPTIONS
    ) -> None:
        """Create a subscription, which gets what is published from now on; an equal one stays as it is."""
        options = DEFAULT_OPTIONS if options is None else options
        if not isinstance(options, SubscriptionOptions):
            raise InvalidSetting("options", options, "a SubscriptionOptions, or None for its defaults")
        _check_name("subscription", subscription_name)
        policy = options.dead_letter_policy
        if policy is not None:
            _check_name("topic", policy.dead_letter_topic)
            if policy.dead_letter_topic == topic_name:
                raise InvalidSetting("dead_letter_topic", topic_name, "another topic than the subscription's own")
        with self._lock:
            now_ms = self._topics.catch_up()
            self._topics.topic(topic_name)
            known = self._topics.subscriptions.get(subscription_name)
            if known is not None:
                if differs := _difference(known.metadata, topic_name, options):
                    raise AlreadyExistsError("Subscription", subscription_name, differs)
                return
            metadata = SubscriptionMetadata(
                name=subscription_name, topic=topic_name, created=from_ms(now_ms), options=options
            )
            self._topics.add(metadata)

    def unregister_subscription(self, subscription_name: str) -> None:
        """Remove a subscription with all it holds."""
        with self._lock:
            self._topics.catch_up()
            self._topics.remove_subscription(subscription_name)

    def subscription_exists(self, subscription_name: str) -> bool:
        """Say whether a subscription is registered, detached or not."""
        with self._lock:
            self._topics.catch_up()
            return subscription_name in self._topics.subscriptions

    def get_subscription(self, subscription_name: str) -> SubscriptionMetadata | None:
        """Return a subscription's metadata, or None."""
        with self._lock:
            self._topics.catch_up()
            subscription = self._topics.subscriptions.get(subscription_name)
            return subscription.metadata if subscription is not None else None

    def get_subscriptions_for_topic(self, topic_name: str) -> list[SubscriptionMetadata]:
        """List what a topic delivers to: none when it does not exist, and no detached ones."""
        with self._lock:
            self._topics.catch_up()
            topic = self._topics.topics.get(topic_name)
            return [subscription.metadata for subscription in topic.subscriptions.values()] if topic is not None else []

    def get_all_subscriptions(self) -> list[SubscriptionMetadata]:
        """List all subscriptions, the detached ones included, in the order they were registered."""
        with self._lock:
            self._topics.catch_up()
            return [subscription.metadata for subscription in self._topics.subscriptions.values()]

    def get_stats(self, subscription_name: str) -> SubscriptionStats:
        """Say how much a subscription holds and has in flight."""
        with self._lock:
            self._topics.catch_up()
            return self._topics.subscription(subscription_name).stats()

    def get_leases(self, subscription_name: str) -> list[MessageLease]:
        """List what a subscription has in flight."""
        with self._lock:
            self._topics.catch_up()
            return list(self._topics.subscription(subscription_name).open_leases())

    # Messages

    def publish(self, topic_name: str, messages: Iterable[InternalMessage]) -> list[str]:
        """Give every subscription of a topic a copy of each message; return the new ids, in order.

        One bad message refuses the whole batch. Without a subscription the messages are discarded.
        """
        batch = list(messages)
        with self._lock:
            now_ms = self._topics.catch_up()
            topic = self._topics.topic(topic_name)
            parcels = []
            for message, length in zip(batch, check_all(batch), strict=True):
                self._last_publish_ns = max(now_ms * NANOSECONDS_PER_MS, self._last_publish_ns + PUBLISH_STEP_NS)
                parcels.append(wrap(message, length, self._last_publish_ns))
            for subscription in topic.subscriptions.values():
                subscription.accept(parcels, now_ms)
                self._topics.plan(subscription)
            return [envelope.id for envelope in parcels]

    def pull(self, subscription_name: str, max_messages: int) -> list[InternalMessage]:
        """Lease up to `max_messages`, oldest first; each comes with the ack id that settles it."""
        whole_number("max_messages", max_messages, lowest=1)
        with self._lock:
            now_ms = self._topics.catch_up()
            subscription = self._topics.subscription(subscription_name)
            if subscription.metadata.detached:
                return []
            pulled = subscription.pull(max_messages, now_ms)
            if pulled:
                self._topics.plan(subscription)
                self._cleaner.start()
            return pulled

    def ack(self, ack_id: str | None) -> None:
        """Be done with a message."""
        with self._lock:
            now_ms = self._topics.catch_up()
            subscription, delivery = self._topics.held(ack_id, now_ms)
            subscription.ack(delivery, now_ms)

    def nack(self, ack_id: str | None) -> None:
        """Refuse a message: it comes back at once, or after the backoff of the retry policy."""
        with self._lock:
            now_ms = self._topics.catch_up()
            subscription, delivery = self._topics.held(ack_id, now_ms)
            subscription.nack(delivery, now_ms)
            self._topics.follow_up(subscription, now_ms)

    def modify_ack_deadline(self, ack_id: str | None, seconds: int) -> None:
        """Let the ack deadline be `seconds` from now; 0 refuses the message, as `nack` does."""
        whole_number("seconds", seconds, lowest=0, highest=MAX_ACK_DEADLINE_SECONDS)
        if seconds == 0:
            self.nack(ack_id)
            return
        with self._lock:
            now_ms = self._topics.catch_up()
            subscription, delivery = self._topics.held(ack_id, now_ms)
            subscription.extend(delivery, seconds, now_ms)
            self._topics.follow_up(subscription, now_ms)

    def _tidy(self) -> bool:
        """Catch up from the clean-up thread; say whether it is still wanted."""
        with self._lock:
            self._topics.catch_up()
            wanted = self._topics.leases_exist
            if not wanted:
                self._cleaner.retire()
            return wanted


def _check_name(what: str, name: str) -> None:
    try:
        queue_name(name)
    except InvalidName as error:
        raise InvalidName(what, name, error.allowed) from None


def _difference(known: SubscriptionMetadata, topic: str, options: SubscriptionOptions) -> str | None:
    """Return what a registration asks for that the subscription has not, or None."""
    if known.topic != topic:
        return "topic"
    if known.detached:
        return "topic of that name, which was unregistered"
    return next(
        (field for field in options.__struct_fields__ if getattr(options, field) != getattr(known.options, field)), None
    )
