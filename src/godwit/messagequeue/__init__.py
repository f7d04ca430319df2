"""Publish and subscribe inside one process: a synchronous, thread-safe broker over the memory engine.

`docs/messagequeue.md` shows how to use it. It is documented but no part of `godwit.__all__`: an application that may
outgrow one process holds a `Broker` instead.

Modules:

    facade         the in-process broker: its calls, under one lock, each at one instant
    types          what its callers give and get: messages, leases, metadata, options
    envelopes      its messages: checked, and wrapped the way the engine carries them
    topics         its topics and subscriptions, and what time does to them
    subscription   one subscription: an engine queue of its own, its leases and counts
    due_times      which subscription needs care when
    cleaner        the thread that cleans up while no call comes
"""

from godwit.core.errors import (
    AlreadyExistsError,
    InvalidAckId,
    InvalidArgumentError,
    NotFoundError,
    SubscriptionNotFound,
    TopicNotFound,
)
from godwit.core.queues import FlowControl
from godwit.messagequeue.facade import MessageQueue
from godwit.messagequeue.types import (
    BackoffPolicy,
    DeadLetterPolicy,
    InternalMessage,
    MessageLease,
    SubscriptionMetadata,
    SubscriptionOptions,
    SubscriptionStats,
    TopicMetadata,
)

__all__ = [
    "AlreadyExistsError",
    "BackoffPolicy",
    "DeadLetterPolicy",
    "FlowControl",
    "InternalMessage",
    "InvalidAckId",
    "InvalidArgumentError",
    "MessageLease",
    "MessageQueue",
    "NotFoundError",
    "SubscriptionMetadata",
    "SubscriptionNotFound",
    "SubscriptionOptions",
    "SubscriptionStats",
    "TopicMetadata",
    "TopicNotFound",
]
