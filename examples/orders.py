"""Publish an order to a topic, process it from a subscription, acknowledge it; all inside this process."""

from __future__ import annotations

from godwit.messagequeue import InternalMessage, MessageQueue, SubscriptionOptions


def main() -> None:
    queue = MessageQueue.get_instance()

    queue.register_topic("orders")
    queue.register_subscription("order-processor", "orders", SubscriptionOptions(ack_deadline_seconds=60))

    message_ids = queue.publish("orders", [InternalMessage(data=b"Order #1", attributes={"orderId": "12345"})])
    print(f"published {len(message_ids)} message")

    messages = queue.pull("order-processor", 10)
    print(f"processing {messages[0].data.decode()} (order {messages[0].attributes['orderId']})")

    queue.ack(messages[0].ack_id)
    print(f"left over: {queue.pull('order-processor', 10)}")


if __name__ == "__main__":
    main()
