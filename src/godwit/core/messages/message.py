"""A message as applications see it: immutable, with a caller-visible id; JSON on the wire."""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Final

import msgspec

from godwit.core.clock import utc_now
from godwit.core.failures.retry import RetryPolicy
from godwit.core.names import GroupName, MessageId, QueueName, new_message_id

Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class Priority(IntEnum):
    """Names for priorities; any whole number from 0 to 100 is one."""

    LOW = 10
    MEDIUM = 50
    HIGH = 75
    CRITICAL = 95


class Kind(StrEnum):
    """How a message is meant to travel; it sets defaults such as the priority."""

    IMMEDIATE = "immediate"
    STANDARD = "standard"
    BULK = "bulk"
    SCHEDULED = "scheduled"
    RECURRING = "recurring"


PRIORITY_OF_KIND: Final = {Kind.IMMEDIATE: 100, Kind.BULK: 10}
DEFAULT_PRIORITY: Final = 50
MAX_PRIORITY: Final = 100


class MessageMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a message comes from and how its payload is to be read."""

    correlation_id: str | None = None
    user_id: str | None = None
    source: str = ""
    version: str = "1.0"
    content_type: str = "application/json"
    encoding: str | None = None
    headers: dict[str, str] = {}
    encrypted: bool = False
    key_id: str | None = None


class Routing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a message shall go: a queue, and one group of it instead of all."""

    target_queue: QueueName | None = None
    consumer_group: GroupName | None = None


NO_METADATA: Final = MessageMetadata()
NO_ROUTING: Final = Routing()
"""What a message has that says nothing of the kind: always these very objects, until it has travelled."""


class Scheduling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a message is due: once at `deliver_at`, or again and again by `cron` in `timezone`."""

    deliver_at: Instant | None = None
    cron: str | None = None
    timezone: str = "UTC"
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    max_occurrences: int | None = None
    schedule_id: str | None = None
    campaign: str | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an application publishes and a handler receives.

    The id is made with the message, so that publishing the same object again after an error is recognised.
    """

    id: MessageId = msgspec.field(default_factory=new_message_id)
    queue: QueueName = QueueName("")
    type: str = "message"
    kind: Kind = Kind.STANDARD
    priority: int | None = None
    payload: Any = None
    attributes: dict[str, str] = {}
    metadata: MessageMetadata = NO_METADATA
    routing: Routing = NO_ROUTING
    scheduling: Scheduling | None = None
    retry_policy: RetryPolicy | None = None
    ordering_key: str | None = None
    created_at: Instant = msgspec.field(default_factory=utc_now)
    expires_at: Instant | None = None
    replay_of: MessageId | None = None

    @property
    def effective_priority(self) -> int:
        """The priority it was given, else that of its kind."""
        if self.priority is not None:
            return self.priority
        return DEFAULT_PRIORITY if self.kind is Kind.STANDARD else PRIORITY_OF_KIND.get(self.kind, DEFAULT_PRIORITY)
