"""A message queue for Python whose whole life is also a Spark table."""

from typing import TYPE_CHECKING, Any

from godwit.brokers.contract import Ack, Broker, DeadLetter, Delivery, GiveUp, HandBack, Nack, Postpone, Receipt
from godwit.brokers.urls import connect
from godwit.core.errors import GodwitError
from godwit.core.failures.breaker import Breaker
from godwit.core.failures.failure import ErrorType, FailureKind, ProcessingError
from godwit.core.failures.judgement import BatchFailed, DownstreamAway, Permanent, RateLimited, Retry
from godwit.core.failures.retry import Backoff, RetryPolicy, Strategy
from godwit.core.messages.envelope import Envelope, seal, seal_all
from godwit.core.messages.message import Kind, Message, MessageMetadata, Priority, Routing, Scheduling
from godwit.core.queues import FlowControl, GroupSpec, Overflow, QueueSpec, QueueType
from godwit.core.rate import Rate

if TYPE_CHECKING:
    from godwit.admin.control import QueueControl
    from godwit.admin.dead_letters import DeadLetterQueueHandler
    from godwit.admin.letter_filter import LetterFilter
    from godwit.manager import MessageQueueManager
    from godwit.runtime.worker.consumer import QueueConsumer

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "Backoff",
    "BatchFailed",
    "Breaker",
    "Broker",
    "DeadLetter",
    "DeadLetterQueueHandler",
    "Delivery",
    "DownstreamAway",
    "Envelope",
    "ErrorType",
    "FailureKind",
    "FlowControl",
    "GiveUp",
    "GodwitError",
    "GroupSpec",
    "HandBack",
    "Kind",
    "LetterFilter",
    "Message",
    "MessageMetadata",
    "MessageQueueManager",
    "Nack",
    "Overflow",
    "Permanent",
    "Postpone",
    "Priority",
    "ProcessingError",
    "QueueConsumer",
    "QueueControl",
    "QueueSpec",
    "QueueType",
    "Rate",
    "RateLimited",
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

_LAZY = {
    "DeadLetterQueueHandler": "godwit.admin.dead_letters",
    "LetterFilter": "godwit.admin.letter_filter",
    "MessageQueueManager": "godwit.manager",
    "QueueConsumer": "godwit.runtime.worker.consumer",
    "QueueControl": "godwit.admin.control",
}
"""Names whose modules bring the runtime along: imported when they are asked for."""


def __getattr__(name: str) -> Any:
    """Import what is asked for late."""
    if name not in _LAZY:
        raise AttributeError(f"module 'godwit' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
