"""The RabbitMQ broker: messages in quorum queues, bookkeeping in a ledger."""

from godwit.brokers.rabbitmq.broker import CAPABILITIES, RabbitMQBroker
from godwit.brokers.rabbitmq.topology import QueueNames

__all__ = ["CAPABILITIES", "QueueNames", "RabbitMQBroker"]
