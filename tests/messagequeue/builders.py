"""Short ways to make what these tests publish and register."""

from __future__ import annotations

from datetime import timedelta

from godwit.messagequeue import DeadLetterPolicy, InternalMessage, MessageQueue, SubscriptionOptions

SECOND = timedelta(seconds=1)


def message(data: str | bytes = "test", key: str | None = None, **attributes: str) -> InternalMessage:
    return InternalMessage(
        data=data.encode() if isinstance(data, str) else data, attributes=attributes, ordering_key=key
    )


def numbered(count: int, key: str | None = None) -> list[InternalMessage]:
    return [message(str(number), key) for number in range(count)]


def texts(messages: list[InternalMessage]) -> list[str]:
    return [one.data.decode() for one in messages]


def subscribe(
    queue: MessageQueue,
    *subscriptions: str,
    topic: str = "test-topic",
    options: SubscriptionOptions | None = None,
) -> None:
    """Register the topic and its subscriptions."""
    queue.register_topic(topic)
    for subscription in subscriptions:
        queue.register_subscription(subscription, topic, options or SubscriptionOptions())


def dead_lettering(attempts: int = 2, topic: str = "dead", **others: timedelta) -> SubscriptionOptions:
    policy = DeadLetterPolicy(dead_letter_topic=topic, max_delivery_attempts=attempts)
    return SubscriptionOptions(dead_letter_policy=policy, **others)  # type: ignore[arg-type]


def use_up(queue: MessageQueue, subscription: str, attempts: int) -> None:
    """Nack whatever is delivered, so many times."""
    for _ in range(attempts):
        for one in queue.pull(subscription, 1_000):
            queue.nack(one.ack_id)
