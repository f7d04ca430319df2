"""A message sealed for transport: the facts a broker needs, and the encoded message it never looks into."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

import msgspec

from godwit.core.clock import EPOCH, to_ms
from godwit.core.error_text import error_text, value_text
from godwit.core.errors import GodwitError, InvalidMessage
from godwit.core.limits import EARLIEST_MS, LATEST_MS, bounded_instant
from godwit.core.message import (
    DEFAULT_PRIORITY,
    MAX_PRIORITY,
    NO_METADATA,
    NO_ROUTING,
    Kind,
    Message,
    MessageMetadata,
    Routing,
    Scheduling,
)
from godwit.core.names import (
    GroupName,
    MessageId,
    QueueName,
    check_message_id,
    check_type,
    group_name,
    is_name,
    is_plain_id,
    is_type,
    queue_name,
)
from godwit.core.retry import RetryPolicy

MAX_MESSAGE_BYTES: Final = 10 << 20
MAX_ATTRIBUTE_KEY_BYTES: Final = 256
MAX_ATTRIBUTE_VALUE_BYTES: Final = 1024
MAX_ORDERING_KEY_BYTES: Final = 1024
MAX_PAYLOAD_DEPTH: Final = 64
RESERVED_ATTRIBUTE_PREFIX: Final = "goog"  # covers googclient_ too

_PLAIN: Final = frozenset({str, int, bool, type(None)})
_UNSCHEDULED: Final = (None, None, None)
_TEXT_OR_NONE: Final = frozenset({str, type(None)})
_STANDARD: Final = Kind.STANDARD
_LOOKED_INTO: Final = (
    ("queue", str),
    ("type", str),
    ("routing", Routing),
    ("metadata", MessageMetadata),
    ("scheduling", Scheduling),
)
_KINDS: Final = tuple(kind.value for kind in Kind)
_encode: Final = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Message)


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """What a broker carries. `body` is opaque to it; `size` is what limits count."""

    id: MessageId
    queue: QueueName
    body: bytes
    size: int
    created_at_ms: int
    type: str = "message"
    priority: int = 50
    ordering_key: str | None = None
    group: GroupName | None = None
    deliver_at_ms: int | None = None
    expires_at_ms: int | None = None
    schedule_id: str | None = None
    campaign: str | None = None
    replay_of: MessageId | None = None

    def expiry_ms(self, ttl_ms: int) -> int:
        """Return when it expires by its own time or the queue's ttl, whichever is earlier; 0 when by neither."""
        own_ms = self.expires_at_ms
        if not ttl_ms:
            return own_ms or 0
        by_ttl_ms = (self.created_at_ms if self.deliver_at_ms is None else self.deliver_at_ms) + ttl_ms
        return by_ttl_ms if own_ms is None or own_ms > by_ttl_ms else own_ms

    def open(self) -> Message:
        """Return the message inside; raises msgspec.DecodeError when it is not one of ours."""
        try:
            return _decoder.decode(self.body)
        except (GodwitError, RecursionError) as error:  # of a setting that cannot be, of brackets without end
            raise msgspec.ValidationError(error_text(error)) from error


def seal(message: Message, ending: bytes = b"") -> Envelope:
    """Check a message against every limit and return it ready for a broker.

    `ending` makes the whole JSON of its own but for the last brace and of its id, where that `is_plain_id`.
    """
    # Every message passes here: what nearly all of them are is looked at in place, the rest by a function each.
    name, kind, queue, priority = message.id, message.type, message.queue, message.priority
    if not ending:
        check_message_id(name)
    if type(kind) is not str or not is_type(kind):
        check_type(kind)
    queue, group = (queue, None) if message.routing is NO_ROUTING else _addressed(message)
    if type(queue) is not str or not is_name(queue):
        _refuse_queue(queue)
    standard = message.kind is _STANDARD
    if not standard:
        _check_kind(message.kind)
    if priority is None:
        priority = DEFAULT_PRIORITY if standard else message.effective_priority
    elif type(priority) is not int or not 0 <= priority <= MAX_PRIORITY:
        priority = _whole(priority)
    if message.attributes != {}:
        check_attributes(message.attributes)
    if message.metadata is not NO_METADATA:
        _check_metadata(message.metadata)
    if message.ordering_key is not None:
        check_ordering_key(message.ordering_key)
    if message.replay_of is not None:
        check_message_id(message.replay_of)
    created_ms = aware_ms("created_at", message.created_at)
    expires_ms = None if message.expires_at is None else aware_ms("expires_at", message.expires_at)
    scheduling = message.scheduling
    due_ms, schedule_id, campaign = _UNSCHEDULED if scheduling is None else _scheduled(scheduling)
    if (
        not EARLIEST_MS <= created_ms <= LATEST_MS
        or (expires_ms is not None and not EARLIEST_MS <= expires_ms <= LATEST_MS)
        or (due_ms is not None and not EARLIEST_MS <= due_ms <= LATEST_MS)
    ):
        return seal(_moved_inside(message), ending)
    body = written(message, ending)
    return Envelope(
        name,
        queue,
        body,
        len(body),
        created_ms,
        kind,
        priority,
        message.ordering_key,
        group,
        due_ms,
        expires_ms,
        schedule_id,
        campaign,
        message.replay_of,
    )


def written(message: Message, ending: bytes) -> bytes:
    """Return a message as JSON, ended as `seal` says, when its payload and size are within the limits."""
    check_payload(message.payload)
    if message.retry_policy is not None and type(message.retry_policy) is not RetryPolicy:
        _refuse_type("retry_policy", message.retry_policy, "a RetryPolicy")
    try:
        body = _encode(message)
    except (TypeError, ValueError, OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidMessage("content", f"cannot be written as JSON ({error})", "Use plain JSON values.") from error
    if ending:
        body = ending % (body[:-1], message.id.encode())
    if len(body) > MAX_MESSAGE_BYTES:
        check_size(len(body))
    return body


def is_like(message: Message, other: Message) -> bool:
    """Say whether a message differs from another one, which was sealed, in id, payload and times of creation only.

    Both leave everything to its default that most messages do.
    """
    return (
        message.queue == other.queue
        and message.type == other.type
        and message.kind is Kind.STANDARD
        and message.metadata is NO_METADATA
        and message.routing is NO_ROUTING
        and message.priority is None
        and message.scheduling is None
        and message.expires_at is None
        and message.ordering_key is None
        and message.replay_of is None
        and message.attributes == {}
        and type(message.id) is str
        and is_plain_id(message.id) is not None
    )


def _addressed(message: Message) -> tuple[QueueName, GroupName | None]:
    """Return queue and group of a message that says more than its queue."""
    routing = message.routing
    if type(routing) is not Routing:
        _refuse_type("routing", routing, "a Routing")
    for name in (message.queue, routing.target_queue):
        if name != "" and name is not None:
            queue_name(name)
    if routing.consumer_group is not None:
        group_name(routing.consumer_group)
    return routing.target_queue or message.queue, routing.consumer_group


def _refuse_type(field: str, value: object, expected: str) -> NoReturn:
    raise InvalidMessage(field, f"is of type {type(value).__name__}", f"Use {expected}, or leave it out.")


def check_fields(message: Any) -> None:
    """Refuse what is no message, or one with a field of a wrong type that is looked into before it is sealed."""
    if not isinstance(message, Message):
        _refuse_type("content", message, "a godwit.Message")
    for field, expected in _LOOKED_INTO:
        value = getattr(message, field)
        if type(value) is not expected and (value is not None or field != "scheduling"):
            _refuse_type(field, value, f"a {expected.__name__}")


def _check_kind(kind: Any) -> None:
    if type(kind) is not Kind and (type(kind) is not str or kind not in _KINDS):
        raise InvalidMessage("kind", f"is {kind!r}", f"Use one of {', '.join(_KINDS)}.")


def _check_metadata(metadata: Any) -> None:
    """Refuse metadata that no handler could read."""
    if type(metadata) is not MessageMetadata:
        _refuse_type("metadata", metadata, "a MessageMetadata")
    if not (
        type(metadata.source) is type(metadata.version) is type(metadata.content_type) is str
        and type(metadata.correlation_id) in _TEXT_OR_NONE
        and type(metadata.user_id) in _TEXT_OR_NONE
        and type(metadata.encoding) in _TEXT_OR_NONE
        and type(metadata.key_id) in _TEXT_OR_NONE
        and type(metadata.encrypted) is bool
    ):
        raise InvalidMessage("metadata", f"is {metadata!r}", "Its fields are text, `encrypted` is True or False.")
    if metadata.headers != {}:
        check_attributes(metadata.headers, what="header")


def _moved_inside(message: Message) -> Message:
    """Return the message with its times moved inside the limits, so that all who read it see what brokers go by."""
    scheduling, expires_at = message.scheduling, message.expires_at
    if scheduling is not None and scheduling.deliver_at is not None:
        scheduling = msgspec.structs.replace(scheduling, deliver_at=bounded_instant(scheduling.deliver_at))
    return msgspec.structs.replace(
        message,
        created_at=bounded_instant(message.created_at),
        expires_at=None if expires_at is None else bounded_instant(expires_at),
        scheduling=scheduling,
    )


def _refuse_queue(queue: Any) -> None:
    if not queue:
        raise InvalidMessage("queue", "is not set", "Give the message a queue, or let routing rules choose one.")
    queue_name(queue)


def _scheduled(scheduling: Any) -> tuple[int | None, str | None, str | None]:
    """Return when a message is due, its schedule and its campaign."""
    if type(scheduling) is not Scheduling:
        _refuse_type("scheduling", scheduling, "a Scheduling")
    if scheduling.starts_at is not None:
        aware_ms("scheduling.starts_at", scheduling.starts_at)
    if scheduling.ends_at is not None:
        aware_ms("scheduling.ends_at", scheduling.ends_at)
    if not (
        type(scheduling.timezone) is str
        and type(scheduling.cron) in _TEXT_OR_NONE
        and type(scheduling.schedule_id) in _TEXT_OR_NONE
        and type(scheduling.campaign) in _TEXT_OR_NONE
    ):
        raise InvalidMessage("scheduling", f"is {scheduling!r}", "Its cron, timezone and names are text.")
    if scheduling.max_occurrences is not None and type(scheduling.max_occurrences) is not int:
        _refuse_type("scheduling.max_occurrences", scheduling.max_occurrences, "a whole number")
    due_at = scheduling.deliver_at
    return None if due_at is None else aware_ms("deliver_at", due_at), scheduling.schedule_id, scheduling.campaign


def _whole(priority: Any) -> int:
    """Return a priority that is of another type than most; refuse what is none."""
    if type(priority) is bool or not isinstance(priority, int) or not 0 <= priority <= MAX_PRIORITY:
        raise InvalidMessage("priority", f"is {priority!r}", f"Use a whole number from 0 to {MAX_PRIORITY}.")
    return int(priority)


def seal_all(messages: Iterable[Message]) -> list[Envelope]:
    """Seal a batch; one bad message refuses them all and the error names its place."""
    sealed = []
    for index, message in enumerate(messages):
        try:
            sealed.append(seal(message))
        except InvalidMessage as error:
            raise error.at(index) from error
    return sealed


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
        _refuse_type(f"{what}s", attributes, "a dict of strings")
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
