"""What callers of `MessageQueue` give and get: messages, leases, metadata and options, all of them frozen."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import force_setattr

from godwit.core.clock import milliseconds, utc_now
from godwit.core.errors import InvalidSetting
from godwit.core.failures.retry import Backoff
from godwit.core.limits import as_time_setting
from godwit.core.queues import FlowControl

MIN_ACK_DEADLINE_SECONDS: Final = 10
MAX_ACK_DEADLINE_SECONDS: Final = 600


class InternalMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message on its way in, or one delivery of it on the way out.

    `publish` sets id and publish time itself, whatever the caller put there. `publish_time_ns` is 0 and `ack_id` is
    None on a message that was not pulled.
    """

    id: str = ""
    data: bytes
    attributes: dict[str, str] = {}
    publish_time: datetime = msgspec.field(default_factory=utc_now)
    publish_time_ns: int = 0
    ordering_key: str | None = None
    delivery_attempt: int = 1
    ack_id: str | None = None

    @property
    def length(self) -> int:
        """Its size in bytes: data, attribute keys and values, ordering key."""
        return message_length(self.data, self.attributes, self.ordering_key)


def message_length(data: bytes, attributes: dict[str, str], ordering_key: str | None) -> int:
    """Return the bytes of data, attributes and ordering key; raises UnicodeEncodeError for text that is none."""
    length = len(data)
    for key, value in attributes.items():
        length += len(key.encode()) + len(value.encode())
    return length + len(ordering_key.encode()) if ordering_key is not None else length


class MessageLease(msgspec.Struct, frozen=True, kw_only=True):
    """A message in flight: who settles with `ack_id` before `deadline` keeps it from being delivered again."""

    message: InternalMessage
    ack_id: str
    subscription: str
    deadline: datetime
    deadline_extensions: int = 0


class TopicMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A topic and when it was created."""

    name: str
    created: datetime


class BackoffPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long a refused or timed-out message waits: the minimum, doubled with every delivery, up to the maximum."""

    minimum_backoff: timedelta = timedelta(seconds=10)
    maximum_backoff: timedelta = timedelta(seconds=600)

    def __post_init__(self) -> None:
        """Refuse impossible values; a number is seconds."""
        for setting in ("minimum_backoff", "maximum_backoff"):
            force_setattr(self, setting, as_time_setting(setting, getattr(self, setting)))
        _ = self.rule

    @property
    def rule(self) -> Backoff:
        """The same in the engine's words."""
        return Backoff(minimum=self.minimum_backoff, maximum=self.maximum_backoff)


class DeadLetterPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message goes that was delivered `max_delivery_attempts` times in vain."""

    dead_letter_topic: str
    max_delivery_attempts: int = 5

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        whole_number("max_delivery_attempts", self.max_delivery_attempts, lowest=1)


class SubscriptionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a subscription treats its messages."""

    ack_deadline_seconds: int = MIN_ACK_DEADLINE_SECONDS
    message_ordering: bool = False
    flow_control: FlowControl = FlowControl()
    retry_policy: BackoffPolicy | None = None
    dead_letter_policy: DeadLetterPolicy | None = None
    message_retention_duration: timedelta = timedelta(days=7)

    def __post_init__(self) -> None:
        """Refuse impossible values; a number is seconds."""
        whole_number(
            "ack_deadline_seconds",
            self.ack_deadline_seconds,
            lowest=MIN_ACK_DEADLINE_SECONDS,
            highest=MAX_ACK_DEADLINE_SECONDS,
        )
        retention = as_time_setting("message_retention_duration", self.message_retention_duration)
        force_setattr(self, "message_retention_duration", retention)
        if milliseconds(retention) <= 0:
            raise InvalidSetting("message_retention_duration", self.message_retention_duration, "more than 0")


class SubscriptionMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription. It is `detached` once its topic was unregistered: nothing reaches it any more."""

    name: str
    topic: str
    created: datetime
    options: SubscriptionOptions
    detached: bool = False


class SubscriptionStats(msgspec.Struct, frozen=True, kw_only=True):
    """How much a subscription holds, and what became of messages since it was registered.

    `undeliverable` messages used up their attempts and wait for a subscription of the dead letter topic.
    """

    waiting: int = 0
    in_flight_messages: int = 0
    in_flight_bytes: int = 0
    undeliverable: int = 0
    bytes: int = 0
    expired_ack_ids: int = 0
    dropped: int = 0
    past_retention: int = 0
    dead_lettered: int = 0

    @property
    def messages(self) -> int:
        """Everything that counts toward the size limit."""
        return self.waiting + self.in_flight_messages + self.undeliverable


def whole_number(setting: str, value: int, *, lowest: int, highest: int | None = None) -> None:
    """Refuse what is no whole number of this range."""
    # type(), because True is an int.
    if type(value) is not int or value < lowest or (highest is not None and value > highest):
        allowed = f"{lowest} or more" if highest is None else f"{lowest} to {highest}"
        raise InvalidSetting(setting, value, f"a whole number, {allowed}")
