"""What a queue and a group are told when they are declared."""

from __future__ import annotations

from datetime import timedelta
from enum import IntEnum, StrEnum
from typing import Final

import msgspec

from godwit.core.clock import milliseconds
from godwit.core.errors import InvalidSetting
from godwit.core.names import GroupName, QueueName, group_name, queue_name
from godwit.core.retry import Backoff


class Lane(IntEnum):
    """The four lanes of a queue; a higher one is served first."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    CRITICAL = 3


LANE_OF_PRIORITY: Final = (
    *(Lane.LOW,) * 21,
    *(Lane.MEDIUM,) * 40,
    *(Lane.HIGH,) * 20,
    *(Lane.CRITICAL,) * 20,
)
"""The lane of each priority: 0-20, 21-60, 61-80, 81-100."""

DEFAULT_MAX_CRASHES: Final = 3
MAX_PARTITIONS: Final = 256
LOWEST_FIRST_EVERY: Final = 10
"""Every so many pulls begin with the lowest lane, so that it is never starved."""


class QueueType(StrEnum):
    """What a queue is for; it sets defaults, nothing else."""

    PRIORITY = "priority"
    STANDARD = "standard"
    BULK = "bulk"
    SCHEDULED = "scheduled"
    DEAD_LETTER = "dead_letter"


class Overflow(StrEnum):
    """What happens to a publish when a group is full."""

    REFUSE = "refuse"
    DROP = "drop"


class JournalBody(StrEnum):
    """Whether the journal keeps whole messages: `auto` leaves it to the broker."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


def positive(setting: str, value: int | None) -> None:
    """Refuse limits of zero or less."""
    if value is not None and value < 1:
        raise InvalidSetting(setting, value, "1 or more, or none")


class FlowControl(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much of a group may be leased at once, over all its workers."""

    max_messages: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        positive("flow_control.max_messages", self.max_messages)
        positive("flow_control.max_bytes", self.max_bytes)


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group of competing consumers, and what the broker does when one of them falls silent.

    `max_crashes` isolates a message as poison after so many leases ran out; `max_delivery_attempts` gives up after so
    many deliveries of any outcome; `backoff` delays a message whose lease ran out. `forgive_outages` moves open leases
    forward once when nobody looked after the group for longer than a lease.
    """

    name: GroupName
    message_ordering: bool = False
    flow_control: FlowControl = FlowControl()
    max_crashes: int | None = DEFAULT_MAX_CRASHES
    max_delivery_attempts: int | None = None
    backoff: Backoff | None = None
    overflow: Overflow = Overflow.REFUSE
    forgive_outages: bool = True

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        group_name(self.name)
        positive("max_crashes", self.max_crashes)
        positive("max_delivery_attempts", self.max_delivery_attempts)


class QueueSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue: limits hold for each of its groups, times are counted by the broker's clock.

    A queue of several `partitions` keeps order, limits (a share of each) and journal in every one of them; messages of
    one ordering key, or without one of one id, are in the same. `min_replicas` must have a message before its publish
    returns. Both are for brokers of several servers; the others refuse them.
    """

    name: QueueName
    type: QueueType = QueueType.STANDARD
    priority: int = 0
    max_size: int | None = None
    max_bytes: int | None = None
    max_delayed: int | None = 1_000_000
    ttl: timedelta | None = None
    dead_letter_queue: QueueName | None = None
    dedup_window: timedelta = timedelta(minutes=10)
    lanes: int = len(Lane)
    partitions: int = 1
    min_replicas: int = 0
    journal_body: JournalBody = JournalBody.AUTO
    journal_keep: timedelta = timedelta(days=1)
    journal_max_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        queue_name(self.name)
        if self.dead_letter_queue is not None:
            queue_name(self.dead_letter_queue)
            if self.dead_letter_queue == self.name:
                raise InvalidSetting("dead_letter_queue", self.name, "the name of another queue")
        for setting in ("max_size", "max_bytes", "max_delayed", "journal_max_bytes"):
            positive(setting, getattr(self, setting))
        if self.ttl is not None and milliseconds(self.ttl) <= 0:
            raise InvalidSetting("ttl", self.ttl, "more than 0")
        if self.dedup_window < timedelta(0):
            raise InvalidSetting("dedup_window", self.dedup_window, "0 or more")
        if self.lanes not in {1, len(Lane)}:
            raise InvalidSetting("lanes", self.lanes, f"1 or {len(Lane)}")
        if not 1 <= self.partitions <= MAX_PARTITIONS:
            raise InvalidSetting("partitions", self.partitions, f"1 to {MAX_PARTITIONS}")
        if self.min_replicas < 0:
            raise InvalidSetting("min_replicas", self.min_replicas, "0 or more")
        for setting in ("max_size", "max_bytes", "max_delayed"):
            limit = getattr(self, setting)
            if limit is not None and limit < self.partitions:
                raise InvalidSetting(setting, limit, f"{self.partitions} or more: each partition has its share of it")


GROUP_FIXED: Final = ("message_ordering",)
QUEUE_FIXED: Final = ("lanes",)
"""Settings that cannot change while messages are there: where they wait depends on them."""


def changed_setting(old: msgspec.Struct, new: msgspec.Struct, fixed: tuple[str, ...]) -> str | None:
    """Return the first of the `fixed` settings in which two specs differ."""
    return next((setting for setting in fixed if getattr(old, setting) != getattr(new, setting)), None)
