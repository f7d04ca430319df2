"""A message sealed for transport: the facts a broker needs, and the encoded message it never looks into."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from godwit.core.error_text import error_text
from godwit.core.errors import GodwitError, InvalidMessage
from godwit.core.failures.retry import RetryPolicy
from godwit.core.limits import EARLIEST_MS, LATEST_MS, bounded_instant
from godwit.core.messages.checks import (
    MAX_MESSAGE_BYTES,
    aware_ms,
    check_attributes,
    check_kind,
    check_metadata,
    check_ordering_key,
    check_payload,
    check_scheduling,
    check_size,
    refuse_type,
)
from godwit.core.messages.message import (
    DEFAULT_PRIORITY,
    MAX_PRIORITY,
    NO_METADATA,
    NO_ROUTING,
    Kind,
    Message,
    Routing,
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

LONGEST_CORRELATION_ID: Final = 255
"""Of a longer one the journal has so many characters."""
_UNSCHEDULED: Final = (None, None, None)
_STANDARD: Final = Kind.STANDARD
_encode: Final = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Message)


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """What a broker carries. `body` is opaque to it; `size` is what limits count.

    `correlation_id` is None when it is the message's id. `journal_attributes` are those attributes that
    its queue wants in the journal, as JSON. Neither counts in `size`.
    """

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
    correlation_id: str | None = None
    journal_attributes: str | None = None

    @property
    def is_marked(self) -> bool:
        """Whether it has something for the journal that most messages lack."""
        return self.correlation_id is not None or self.journal_attributes is not None

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
        check_kind(message.kind)
    if priority is None:
        priority = DEFAULT_PRIORITY if standard else message.effective_priority
    elif type(priority) is not int or not 0 <= priority <= MAX_PRIORITY:
        priority = _whole(priority)
    if message.attributes != {}:
        check_attributes(message.attributes)
    correlation_id = None
    if message.metadata is not NO_METADATA:
        check_metadata(message.metadata)
        correlation_id = _correlation(message.metadata.correlation_id, name)
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
        correlation_id,
    )


def written(message: Message, ending: bytes) -> bytes:
    """Return a message as JSON, ended as `seal` says, when its payload and size are within the limits."""
    check_payload(message.payload)
    if message.retry_policy is not None and type(message.retry_policy) is not RetryPolicy:
        refuse_type("retry_policy", message.retry_policy, "a RetryPolicy")
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


def _correlation(correlation_id: str | None, message_id: str) -> str | None:
    """Return what the journal keeps of a correlation id: nothing where it is the message's own id."""
    return None if correlation_id is None or correlation_id == message_id else correlation_id[:LONGEST_CORRELATION_ID]


def _addressed(message: Message) -> tuple[QueueName, GroupName | None]:
    """Return queue and group of a message that says more than its queue."""
    routing = message.routing
    if type(routing) is not Routing:
        refuse_type("routing", routing, "a Routing")
    for name in (message.queue, routing.target_queue):
        if name != "" and name is not None:
            queue_name(name)
    if routing.consumer_group is not None:
        group_name(routing.consumer_group)
    return routing.target_queue or message.queue, routing.consumer_group


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
    check_scheduling(scheduling)
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
