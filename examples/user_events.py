"""Events of one user arrive in order, one at a time: the next comes only when the one before is acknowledged."""

from __future__ import annotations

from godwit.messagequeue import InternalMessage, MessageQueue, SubscriptionOptions


def main() -> None:
    queue = MessageQueue.get_instance()

    queue.register_topic("user-events")
    queue.register_subscription(
        "event-processor", "user-events", SubscriptionOptions(message_ordering=True, ack_deadline_seconds=120)
    )

    queue.publish(
        "user-events",
        [
            InternalMessage(data=b"login", ordering_key="user-123"),
            InternalMessage(data=b"page-view", ordering_key="user-123"),
        ],
    )

    first = queue.pull("event-processor", 10)
    print(f"first: {[message.data.decode() for message in first]}")
    print(f"before its ack: {queue.pull('event-processor', 10)}")
    queue.ack(first[0].ack_id)

    second = queue.pull("event-processor", 10)
    print(f"after its ack: {[message.data.decode() for message in second]}")
    queue.ack(second[0].ack_id)


if __name__ == "__main__":
    main()
