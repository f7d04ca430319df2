"""A message between publish and pull: checked, and wrapped the way the engine carries it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, cast

import msgspec

from godwit.brokers.contract import Delivery
from godwit.core.clock import EPOCH
from godwit.core.errors import InvalidMessage
from godwit.core.messages.checks import check_attributes, check_ordering_key, check_size
from godwit.core.messages.envelope import Envelope
from godwit.core.names import QueueName, new_message_id
from godwit.messagequeue.types import InternalMessage

NANOSECONDS_PER_MS: Final = 1_000_000
PUBLISH_STEP_NS: Final = 1_000
"""Between two messages, so that their publish times differ as datetimes too, which end at microseconds."""


class TopicEnvelope(Envelope, frozen=True, gc=False):
    """An envelope that needs no decoding: its body is the message's data, shared by all subscriptions."""

    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    publish_time_ns: int = 0


def check_all(messages: Sequence[InternalMessage]) -> list[int]:
    """Check a batch and return the length of each message; one bad message refuses them all."""
    lengths = []
    for index, message in enumerate(messages):
        try:
            lengths.append(_checked_length(message))
        except InvalidMessage as error:
            raise error.at(index) from error
    return lengths


def _checked_length(message: InternalMessage) -> int:
    if not isinstance(message, InternalMessage):
        raise InvalidMessage("type", f"is {type(message).__name__}", "Publish InternalMessage objects.")
    if not isinstance(message.data, bytes):
        raise InvalidMessage("data", f"is of type {type(message.data).__name__}", "Data is bytes; encode text first.")
    if not isinstance(message.attributes, dict):
        found = type(message.attributes).__name__
        raise InvalidMessage("attributes", f"are of type {found}", "Use a dict of strings.")
    check_attributes(message.attributes)
    if message.ordering_key is not None:
        check_ordering_key(message.ordering_key)
    try:
        length = message.length
    except UnicodeEncodeError as error:
        raise InvalidMessage("text", f"is not Unicode ({error.reason})", "Remove lone surrogates.") from error
    check_size(length)
    return length


def wrap(message: InternalMessage, length: int, publish_time_ns: int) -> TopicEnvelope:
    """Return a checked message under an id of its own."""
    return TopicEnvelope(
        id=new_message_id(),
        queue=QueueName(""),
        body=message.data,
        size=length,
        created_at_ms=publish_time_ns // NANOSECONDS_PER_MS,
        ordering_key=message.ordering_key,
        attributes=dict(message.attributes),
        publish_time_ns=publish_time_ns,
    )


def address(envelope: TopicEnvelope, subscription: QueueName, expires_at_ms: int) -> TopicEnvelope:
    """Return the copy for one subscription."""
    return msgspec.structs.replace(envelope, queue=subscription, expires_at_ms=expires_at_ms)


def unwrap(delivery: Delivery) -> InternalMessage:
    """Return the message of a delivery; the receiver may do with its attributes what he likes."""
    envelope = cast("TopicEnvelope", delivery.envelope)
    return InternalMessage(
        id=envelope.id,
        data=envelope.body,
        attributes=dict(envelope.attributes),
        publish_time=EPOCH + timedelta(microseconds=envelope.publish_time_ns // 1_000),
        publish_time_ns=envelope.publish_time_ns,
        ordering_key=envelope.ordering_key,
        delivery_attempt=delivery.attempt,
        ack_id=ack_id_of(delivery),
    )


def ack_id_of(delivery: Delivery) -> str:
    """Return the ack id callers see: subscription, a token no other lease had, and the delivery attempt."""
    return f"{delivery.ack_id}-{delivery.attempt}"
