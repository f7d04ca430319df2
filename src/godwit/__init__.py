"""A message queue for Python whose whole life is also a Spark table."""

from godwit.brokers.contract import Ack, Broker, DeadLetter, Delivery, GiveUp, HandBack, Receipt, Retry
from godwit.brokers.urls import connect
from godwit.core.envelope import Envelope, seal, seal_all
from godwit.core.errors import GodwitError
from godwit.core.failure import ErrorType, FailureKind, ProcessingError
from godwit.core.message import Kind, Message, MessageMetadata, Priority, Routing, Scheduling
from godwit.core.queues import FlowControl, GroupSpec, Overflow, QueueSpec, QueueType
from godwit.core.retry import Backoff, RetryPolicy, Strategy

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "Backoff",
    "Broker",
    "DeadLetter",
    "Delivery",
    "Envelope",
    "ErrorType",
    "FailureKind",
    "FlowControl",
    "GiveUp",
    "GodwitError",
    "GroupSpec",
    "HandBack",
    "Kind",
    "Message",
    "MessageMetadata",
    "Overflow",
    "Priority",
    "ProcessingError",
    "QueueSpec",
    "QueueType",
    "Receipt",
    "Retry",
    "RetryPolicy",
    "Routing",
    "Scheduling",
    "Strategy",
    "connect",
    "seal",
    "seal_all",
]
