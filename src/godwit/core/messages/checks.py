"""Checks of a message's fields: what is too large, of a wrong type, or what JSON would change or cannot carry."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from godwit.core.clock import EPOCH, to_ms
from godwit.core.error_text import error_text, value_text
from godwit.core.errors import InvalidMessage
from godwit.core.messages.message import Kind, Message, MessageMetadata, Routing, Scheduling

MAX_MESSAGE_BYTES: Final = 10 << 20
MAX_ATTRIBUTE_KEY_BYTES: Final = 256
MAX_ATTRIBUTE_VALUE_BYTES: Final = 1024
MAX_ORDERING_KEY_BYTES: Final = 1024
MAX_PAYLOAD_DEPTH: Final = 64
RESERVED_ATTRIBUTE_PREFIX: Final = "goog"  # covers googclient_ too

_PLAIN: Final = frozenset({str, int, bool, type(None)})
TEXT_OR_NONE: Final = frozenset({str, type(None)})
_LOOKED_INTO: Final = (
    ("queue", str),
    ("type", str),
    ("routing", Routing),
    ("metadata", MessageMetadata),
    ("scheduling", Scheduling),
)
_KINDS: Final = tuple(kind.value for kind in Kind)


def refuse_type(field: str, value: object, expected: str) -> NoReturn:
    """Refuse a field of a wrong type."""
    raise InvalidMessage(field, f"is of type {type(value).__name__}", f"Use {expected}, or leave it out.")


def check_fields(message: Any) -> None:
    """Refuse what is no message, or one with a field of a wrong type that is looked into before it is sealed."""
    if not isinstance(message, Message):
        remedy = 'Publish a godwit.Message: mq.enqueue(Message(queue="emails", payload={"id": 7})).'
        raise InvalidMessage("it", f"is of type {type(message).__name__}", remedy)
    for field, expected in _LOOKED_INTO:
        value = getattr(message, field)
        if type(value) is not expected and (value is not None or field != "scheduling"):
            refuse_type(field, value, f"a {expected.__name__}")


def check_kind(kind: Any) -> None:
    """Refuse what is no kind of message."""
    if type(kind) is not Kind and (type(kind) is not str or kind not in _KINDS):
        raise InvalidMessage("kind", f"is {kind!r}", f"Use one of {', '.join(_KINDS)}.")


def check_metadata(metadata: Any) -> None:
    """Refuse metadata that no handler could read."""
    if type(metadata) is not MessageMetadata:
        refuse_type("metadata", metadata, "a MessageMetadata")
    if not (
        type(metadata.source) is type(metadata.version) is type(metadata.content_type) is str
        and type(metadata.correlation_id) in TEXT_OR_NONE
        and type(metadata.user_id) in TEXT_OR_NONE
        and type(metadata.encoding) in TEXT_OR_NONE
        and type(metadata.key_id) in TEXT_OR_NONE
        and type(metadata.encrypted) is bool
    ):
        for field in ("source", "version", "content_type"):
            if type(value := getattr(metadata, field)) is not str:
                refuse_type(f"metadata.{field}", value, "text")
        for field in ("correlation_id", "user_id", "encoding", "key_id"):
            if type(value := getattr(metadata, field)) not in TEXT_OR_NONE:
                refuse_type(f"metadata.{field}", value, "text")
        refuse_type("metadata.encrypted", metadata.encrypted, "True or False")
    if metadata.headers != {}:
        check_attributes(metadata.headers, what="header")


def check_scheduling(scheduling: Any) -> None:
    """Refuse a schedule that no handler could read; when the message is due, is looked at by who needs it."""
    if type(scheduling) is not Scheduling:
        refuse_type("scheduling", scheduling, "a Scheduling")
    if scheduling.starts_at is not None:
        aware_ms("scheduling.starts_at", scheduling.starts_at)
    if scheduling.ends_at is not None:
        aware_ms("scheduling.ends_at", scheduling.ends_at)
    if not (
        type(scheduling.timezone) is str
        and type(scheduling.cron) in TEXT_OR_NONE
        and type(scheduling.schedule_id) in TEXT_OR_NONE
        and type(scheduling.campaign) in TEXT_OR_NONE
    ):
        for field in ("cron", "schedule_id", "campaign", "timezone"):
            if type(value := getattr(scheduling, field)) is not str and (value is not None or field == "timezone"):
                refuse_type(f"scheduling.{field}", value, "text")
    if scheduling.max_occurrences is not None and type(scheduling.max_occurrences) is not int:
        refuse_type("scheduling.max_occurrences", scheduling.max_occurrences, "a whole number")


def check_size(size: int) -> None:
    """Refuse messages over 10 MB (2^20 bytes each)."""
    if size > MAX_MESSAGE_BYTES:
        raise InvalidMessage(
            "size",
            f"is {size:,} bytes, more than {MAX_MESSAGE_BYTES:,}",
            "Store large content elsewhere and send a reference to it.",
        )


def check_attributes(attributes: Any, *, what: str = "attribute") -> None:
    """Refuse keys and values outside the limits."""
    if not isinstance(attributes, dict):
        refuse_type(f"{what}s", attributes, "a dict of strings")
    for key, value in attributes.items():
        if not isinstance(key, str) or not key:
            raise InvalidMessage(what, f"key {key!r} is empty or not a string", "Give every key a non-empty name.")
        if len(key.encode("utf-8", "surrogatepass")) > MAX_ATTRIBUTE_KEY_BYTES:
            raise InvalidMessage(
                what, f"key {key[:20]!r}... is longer than {MAX_ATTRIBUTE_KEY_BYTES} bytes", "Use a shorter key."
            )
        if key.startswith(RESERVED_ATTRIBUTE_PREFIX):
            raise InvalidMessage(what, f"key {key!r} has a reserved prefix", "Do not begin keys with 'goog'.")
        if not isinstance(value, str):
            raise InvalidMessage(
                what, f"{key!r} has a value of type {type(value).__name__}", "Attribute values are strings; convert it."
            )
        if len(value.encode("utf-8", "surrogatepass")) > MAX_ATTRIBUTE_VALUE_BYTES:
            raise InvalidMessage(
                what,
                f"{key!r} has a value longer than {MAX_ATTRIBUTE_VALUE_BYTES} bytes",
                "Put long values into the payload.",
            )


def check_ordering_key(key: str) -> None:
    """Refuse empty and overlong ordering keys."""
    if not isinstance(key, str) or not 0 < len(key.encode("utf-8", "surrogatepass")) <= MAX_ORDERING_KEY_BYTES:
        raise InvalidMessage(
            "ordering_key", f"is {str(key)[:20]!r}", f"Use 1 to {MAX_ORDERING_KEY_BYTES} bytes of text, or none."
        )


def aware_ms(field: str, instant: datetime) -> int:
    """Return an instant in milliseconds; refuse one without a time zone."""
    if type(instant) is not datetime or instant.tzinfo is not UTC:
        return _zoned_ms(field, instant)
    since = instant - EPOCH  # what `to_ms` does, without its call: every message has an instant
    return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000


def _zoned_ms(field: str, instant: Any) -> int:
    """Return an instant of any zone, whose class may be any that applications make."""
    remedy = "Use an aware datetime, such as datetime.now(UTC)."
    if isinstance(instant, datetime):
        try:
            if instant.utcoffset() is not None:
                return to_ms(instant)
        except Exception as error:
            raise InvalidMessage(field, f"is in a zone that cannot be used ({error_text(error)})", remedy) from error
    raise InvalidMessage(field, f"is {value_text(instant)}, without a time zone", remedy)


def check_payload(value: Any, *, depth: int = 0, path: str = "payload") -> None:
    """Refuse what JSON would change or cannot carry, naming the place."""
    kind = type(value)
    if kind in _PLAIN:
        return
    if kind is float:
        if not math.isfinite(value):
            raise InvalidMessage(path, f"is {value!r}, which JSON cannot carry", "Send null or a string instead.")
        return
    if depth >= MAX_PAYLOAD_DEPTH:
        raise InvalidMessage(path, f"is nested deeper than {MAX_PAYLOAD_DEPTH}", "Flatten the payload.")
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidMessage(path, f"has the key {key!r}, which is not a string", "JSON keys are strings.")
            if type(item) not in _PLAIN:
                check_payload(item, depth=depth + 1, path=f"{path}.{key}")
    elif kind is list or kind is tuple:
        for index, item in enumerate(value):
            if type(item) not in _PLAIN:
                check_payload(item, depth=depth + 1, path=f"{path}[{index}]")
    else:
        raise InvalidMessage(
            path,
            f"is of type {kind.__name__}, which JSON cannot carry",
            "Convert it first: datetimes with isoformat(), bytes with base64, objects with msgspec.to_builtins().",
        )
