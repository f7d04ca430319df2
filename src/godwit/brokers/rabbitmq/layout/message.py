"""A copy of a message as RabbitMQ carries it: the body as it is, and everything else in one header."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from pamqp import decode

from godwit.brokers.rabbitmq.amqp import frames
from godwit.brokers.rabbitmq.amqp.frames import Incoming, Outgoing
from godwit.brokers.rabbitmq.layout.delays import LONGEST_TTL_MS
from godwit.core.errors import GodwitError
from godwit.core.failures.failure import FailureKind, ProcessingError
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, QueueName, check_message_id, check_type, new_message_id

CARD_BYTES: Final = 60_000
"""A header must fit into one frame of 128 KiB, beside what servers on the way add to it."""
_ROUTING_KEY_BYTES: Final = 255


class GodwitHeader(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What Godwit writes on a message. Fields are only ever added at the end.

    `epoch` and `seq` name the message in the ledger that numbered it, `turn` counts how often this copy was sent anew,
    so that of two copies the older one is recognised.
    """

    epoch: str
    seq: int
    turn: int
    queue: str
    group: str | None
    """The one group this copy is for; None on its first way, through the exchange to every group."""
    created_at_ms: int
    size: int
    priority: int
    ready_at_ms: int
    expiry_ms: int
    ordering_key: str | None = None
    addressed: str | None = None
    deliver_at_ms: int | None = None
    expires_at_ms: int | None = None
    schedule_id: str | None = None
    campaign: str | None = None
    replay_of: str | None = None
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    errors: tuple[ProcessingError, ...] = ()
    kind: FailureKind | None = None
    """Why it is a dead letter, on its way to the dead letter queue."""
    dead_at_ms: int = 0
    bypass: bool = False
    """Whether its id may have been published before: replayed, or moved from another queue."""
    correlation_id: str | None = None
    journal_attributes: str | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(GodwitHeader)
_message = msgspec.json.Decoder(Message)


class InboundMessage(msgspec.Struct, frozen=True):
    """A message from RabbitMQ, understood."""

    tag: int
    redelivered: bool
    returns: int
    """How often the server says it came back without a word."""
    envelope: Envelope
    header: GodwitHeader
    foreign: bool = False
    readable: bool = True


def header_of(
    envelope: Envelope,
    *,
    epoch: str,
    seq: int,
    ready_at_ms: int,
    expiry_ms: int,
    group: GroupName | None,
    bypass: bool = False,
) -> GodwitHeader:
    """Return the header of a message on its first way."""
    return GodwitHeader(
        epoch,
        seq,
        0,
        envelope.queue,
        group,
        envelope.created_at_ms,
        envelope.size,
        envelope.priority,
        ready_at_ms,
        expiry_ms,
        envelope.ordering_key,
        envelope.group,
        envelope.deliver_at_ms,
        envelope.expires_at_ms,
        envelope.schedule_id,
        envelope.campaign,
        envelope.replay_of,
        bypass=bypass,
        correlation_id=envelope.correlation_id,
        journal_attributes=envelope.journal_attributes,
    )


def pack(
    envelope: Envelope, header: GodwitHeader, exchange: str, key: str, *, expiration_ms: int | None = None
) -> Outgoing:
    """Return a copy ready to be sent; what lives longer than the server can count is expired by Godwit alone."""
    if expiration_ms is not None and expiration_ms > LONGEST_TTL_MS:
        expiration_ms = None
    return Outgoing(
        exchange, key, envelope.id, envelope.type, _encoded(header), header.attempt, envelope.body, expiration_ms
    )


def routing_key(envelope: Envelope) -> str:
    """Return the key a message goes to its exchange with: its type, cut to what the protocol takes."""
    raw = envelope.type.encode()
    return envelope.type if len(raw) <= _ROUTING_KEY_BYTES else raw[:_ROUTING_KEY_BYTES].decode("utf-8", "ignore")


def _encoded(header: GodwitHeader) -> bytes:
    data = _encoder.encode(header)
    if len(data) <= CARD_BYTES:
        return data
    # The history is what can be long: first the traces of all but the newest error go, then the texts are cut.
    *older, newest = header.errors
    bare = [msgspec.structs.replace(error, traceback=None) for error in older]
    data = _encoder.encode(msgspec.structs.replace(header, errors=(*bare, newest)))
    if len(data) > CARD_BYTES:
        cut = [msgspec.structs.replace(error, message=error.message[:200], traceback=None) for error in header.errors]
        data = _encoder.encode(msgspec.structs.replace(header, errors=tuple(cut)))
    return data


def unpack(incoming: Incoming, queue: QueueName, now_ms: int) -> InboundMessage:
    """Return what a message from RabbitMQ is to us; a foreign one becomes a message of its queue."""
    properties = incoming.properties
    raw = frames.our_header(properties.headers)
    returns = frames.delivery_count(properties.headers)
    if raw is not None:
        try:
            header = _decoder.decode(raw)
        except msgspec.MsgspecError:
            pass
        else:
            envelope = Envelope(
                properties.message_id or "",
                queue,
                incoming.body,
                header.size,
                header.created_at_ms,
                properties.type or "message",
                header.priority,
                header.ordering_key,
                header.addressed,
                header.deliver_at_ms,
                header.expires_at_ms,
                header.schedule_id,
                header.campaign,
                header.replay_of,
                header.correlation_id,
                header.journal_attributes,
            )
            return InboundMessage(incoming.tag, incoming.redelivered, returns, envelope, header)
    return _foreign(incoming, queue, now_ms, returns)


def _foreign(incoming: Incoming, queue: QueueName, now_ms: int, returns: int) -> InboundMessage:
    """Take in what a producer without Godwit published: JSON is a payload, anything else cannot be handled."""
    envelope, readable = _adopted(incoming, queue, now_ms)
    header = GodwitHeader("", 0, 0, queue, None, envelope.created_at_ms, envelope.size, envelope.priority, now_ms, 0)
    return InboundMessage(
        incoming.tag, incoming.redelivered, returns, envelope, header, foreign=True, readable=readable
    )


def _adopted(incoming: Incoming, queue: QueueName, now_ms: int) -> tuple[Envelope, bool]:
    name = _usable(incoming.properties.message_id, check_message_id) or new_message_id()
    kind = _usable(incoming.properties.type, check_type) or _usable(incoming.routing_key, check_type) or "message"
    body = incoming.body
    plain = Envelope(name, queue, body, len(body), now_ms, kind)
    try:
        payload = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return plain, False
    message = None
    if isinstance(payload, dict) and "payload" in payload and "id" in payload:
        try:
            message = _message.decode(body)
        except msgspec.MsgspecError:
            message = None
    if message is None:
        message = Message(id=name, queue=queue, type=kind, payload=payload)
        body = msgspec.json.encode(message)
    return msgspec.structs.replace(plain, id=message.id, body=body, size=len(body), type=message.type), True


def _usable(text: str | None, check: Any) -> str | None:
    if not text:
        return None
    try:
        check(text)
    except GodwitError:
        return None
    return text


def deaths(headers: bytes) -> list[dict[str, Any]]:
    """Return what servers wrote about why and where a message was dead-lettered, the newest first."""
    try:
        _, table = decode.field_table(len(headers).to_bytes(4) + headers)
    except (ValueError, IndexError, TypeError, UnicodeDecodeError):
        return []
    found = table.get("x-death")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
