"""AMQP 0-9-1 frames of the hot path, written and read by hand; everything rarer goes through pamqp.

A frame is `type, channel, size` (1, 2 and 4 bytes), the payload and 0xCE. A message is a method frame, a header frame
(class, weight, body size, property flags, properties) and body frames of at most `frame_max - 8` bytes.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
END: Final = b"\xce"
OVERHEAD: Final = 8
PREAMBLE: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

BASIC_PUBLISH: Final = 0x003C0028
BASIC_RETURN: Final = 0x003C0032
BASIC_DELIVER: Final = 0x003C003C
BASIC_GET: Final = 0x003C0046
BASIC_GET_OK: Final = 0x003C0047
BASIC_GET_EMPTY: Final = 0x003C0048
BASIC_ACK: Final = 0x003C0050
BASIC_NACK: Final = 0x003C0078

ENVELOPE_HEADER: Final = "x-godwit"
ATTEMPT_HEADER: Final = "x-godwit-attempt"
COUNT_HEADER: Final = "x-delivery-count"

_frame = struct.Struct(">BHI")
_method = struct.Struct(">I")
_header = struct.Struct(">HHQH")
_ack = struct.Struct(">BHIIQBB")
_long = struct.Struct(">I")
_longlong = struct.Struct(">Q")
_signed = struct.Struct(">q")

# Property flags, from the highest bit: content type, encoding, headers, delivery mode, priority, correlation id,
# reply to, expiration, message id, timestamp, type, user id, app id, cluster id.
_CONTENT_TYPE, _ENCODING, _HEADERS, _MODE, _PRIORITY = 1 << 15, 1 << 14, 1 << 13, 1 << 12, 1 << 11
_CORRELATION, _REPLY, _EXPIRATION, _ID, _TIMESTAMP, _TYPE = 1 << 10, 1 << 9, 1 << 8, 1 << 7, 1 << 6, 1 << 5
_PERSISTENT: Final = b"\x02"
_JSON: Final = b"\x10application/json"
_OURS = b"\x08x-godwitS"
_OURS_ATTEMPT = b"\x10x-godwit-attemptI"
_COUNT = b"\x10x-delivery-count"


class Properties(NamedTuple):
    """What the header of a message says, as far as it is needed; `headers` is the table as it came."""

    message_id: str | None
    type: str | None
    headers: bytes


class Incoming(NamedTuple):
    """A message from the server: of a consumer, of a get, or returned."""

    tag: int
    redelivered: bool
    routing_key: str
    properties: Properties
    body: bytes


class Outgoing(NamedTuple):
    """A message to the server."""

    exchange: str
    routing_key: str
    message_id: str
    type: str
    envelope: bytes
    """What Godwit knows of it: the header `x-godwit`."""
    attempt: int
    body: bytes
    expiration_ms: int | None = None


def _short(text: str) -> bytes:
    raw = text.encode()
    return bytes((len(raw),)) + raw


_prefixes: dict[tuple[int, str, str], bytes] = {}
_PREFIXES_KEPT = 10_000


def _publish_frame(channel: int, exchange: str, routing_key: str) -> bytes:
    key = (channel, exchange, routing_key)
    frame = _prefixes.get(key)
    if frame is None:
        payload = _method.pack(BASIC_PUBLISH) + b"\x00\x00" + _short(exchange) + _short(routing_key) + b"\x01"
        frame = _frame.pack(METHOD, channel, len(payload)) + payload + END
        if len(_prefixes) > _PREFIXES_KEPT:
            _prefixes.clear()
        _prefixes[key] = frame
    return frame


def publish(channel: int, message: Outgoing, frame_max: int) -> bytes:
    """Return the frames of a persistent, mandatory publish."""
    table = b"".join(
        (_OURS, _long.pack(len(message.envelope)), message.envelope, _OURS_ATTEMPT, _long.pack(message.attempt))
    )
    flags = _CONTENT_TYPE | _HEADERS | _MODE | _ID | _TYPE
    expiration = b""
    if message.expiration_ms is not None:
        flags |= _EXPIRATION
        expiration = _short(str(message.expiration_ms))
    properties = b"".join(
        (
            _JSON,
            _long.pack(len(table)),
            table,
            _PERSISTENT,
            expiration,
            _short(message.message_id),
            _short(message.type),
        )
    )
    size = len(message.body)
    payload = _header.pack(60, 0, size, flags) + properties
    parts = [
        _publish_frame(channel, message.exchange, message.routing_key),
        _frame.pack(HEADER, channel, len(payload)),
        payload,
        END,
    ]
    room = frame_max - OVERHEAD
    for start in range(0, size, room):
        piece = message.body if size <= room else message.body[start : start + room]
        parts += (_frame.pack(BODY, channel, len(piece)), piece, END)
    return b"".join(parts)


def get(channel: int, queue: str) -> bytes:
    """Return the frame that asks for one message."""
    payload = _method.pack(BASIC_GET) + b"\x00\x00" + _short(queue) + b"\x00"
    return _frame.pack(METHOD, channel, len(payload)) + payload + END


def ack(channel: int, tag: int, *, multiple: bool = False) -> bytes:
    """Return the frame that acknowledges a delivery."""
    return _ack.pack(METHOD, channel, 13, BASIC_ACK, tag, multiple, 0xCE)


def nack(channel: int, tag: int, *, requeue: bool) -> bytes:
    """Return the frame that refuses a delivery."""
    return _ack.pack(METHOD, channel, 13, BASIC_NACK, tag, 2 if requeue else 0, 0xCE)


def tag_of(payload: memoryview | bytes) -> tuple[int, bool]:
    """Return the delivery tag of an ack or nack, and whether it covers all before it."""
    return _longlong.unpack_from(payload, 4)[0], bool(payload[12] & 1)


def delivered(payload: bytes, method: int) -> tuple[int, bool, str, int]:
    """Return tag, redelivered, routing key and remaining count (get only) of a deliver or get-ok method."""
    at = 4
    if method == BASIC_DELIVER:
        at += 1 + payload[at]  # the consumer tag
    tag = _longlong.unpack_from(payload, at)[0]
    redelivered = bool(payload[at + 8] & 1)
    at += 9
    at += 1 + payload[at]  # the exchange
    length = payload[at]
    key = payload[at + 1 : at + 1 + length].decode("utf-8", "replace")
    at += 1 + length
    left = _long.unpack_from(payload, at)[0] if method == BASIC_GET_OK else 0
    return tag, redelivered, key, left


def header(payload: bytes) -> tuple[int, Properties]:
    """Return the body size and the properties that a content header holds."""
    _, _, size, flags = _header.unpack_from(payload)
    at = _header.size
    message_id = kind = None
    headers = b""
    for flag in (_CONTENT_TYPE, _ENCODING):
        if flags & flag:
            at += 1 + payload[at]
    if flags & _HEADERS:
        length = _long.unpack_from(payload, at)[0]
        headers = payload[at + 4 : at + 4 + length]
        at += 4 + length
    at += bool(flags & _MODE) + bool(flags & _PRIORITY)
    for flag in (_CORRELATION, _REPLY, _EXPIRATION):
        if flags & flag:
            at += 1 + payload[at]
    if flags & _ID:
        message_id = payload[at + 1 : at + 1 + payload[at]].decode("utf-8", "replace")
        at += 1 + payload[at]
    at += 8 if flags & _TIMESTAMP else 0
    if flags & _TYPE:
        kind = payload[at + 1 : at + 1 + payload[at]].decode("utf-8", "replace")
    return size, Properties(message_id, kind, headers)


def our_header(headers: bytes) -> bytes | None:
    """Return the header `x-godwit` of a table, or None when the message is not ours."""
    at = headers.find(_OURS)
    if at < 0:
        return None
    at += len(_OURS)
    length = _long.unpack_from(headers, at)[0]
    return headers[at + 4 : at + 4 + length]


def delivery_count(headers: bytes) -> int:
    """Return how often the server says it was delivered before without an ack."""
    at = headers.find(_COUNT)
    if at < 0:
        return 0
    at += len(_COUNT)
    kind, value = headers[at : at + 1], headers[at + 1 : at + 9]
    if kind in (b"l", b"L"):
        return int(_signed.unpack(value)[0])
    if kind in (b"I", b"i"):
        return int(_long.unpack(value[:4])[0])
    return value[0] if kind in (b"b", b"B") else int.from_bytes(value[:2]) if kind in (b"s", b"u") else 0
