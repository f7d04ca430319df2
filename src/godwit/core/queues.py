"""What is declared of a queue and a group."""

from __future__ import annotations

from datetime import timedelta
from enum import IntEnum, StrEnum
from typing import Final

import msgspec
from msgspec.structs import force_setattr

from godwit.core.clock import milliseconds
from godwit.core.errors import InvalidSetting
from godwit.core.failures.retry import Backoff
from godwit.core.limits import (
    LARGEST_COUNT,
    MOST_BYTES,
    as_choice,
    as_count,
    as_flag,
    as_limit,
    as_time_setting,
    as_whole,
)
from godwit.core.names import GroupName, QueueName, group_name, queue_name


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
_LIMITS: Final = (("max_size", LARGEST_COUNT), ("max_bytes", MOST_BYTES), ("max_delayed", LARGEST_COUNT))


MOST_JOURNAL_ATTRIBUTES: Final = 8
LONGEST_ATTRIBUTE_NAME: Final = 256


def as_names_of_attributes(names: object) -> tuple[str, ...]:
    """Return the names of attributes that arrivals carry in the journal; refuse more than a journal should keep."""
    given = tuple(names) if isinstance(names, (list, tuple)) else (None,)
    usable = all(isinstance(name, str) and 0 < len(name) <= LONGEST_ATTRIBUTE_NAME for name in given)
    if not usable or len(given) > MOST_JOURNAL_ATTRIBUTES or len(set(given)) < len(given):
        raise InvalidSetting(
            "journal_attributes", names, f"at most {MOST_JOURNAL_ATTRIBUTES} different names of attributes"
        )
    return tuple(map(str, given))


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


class FlowControl(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much of a group may be leased at once, over all its workers."""

    max_messages: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse impossible values; what is meant to be without end becomes the largest."""
        force_setattr(self, "max_messages", as_limit("flow_control.max_messages", self.max_messages))
        force_setattr(self, "max_bytes", as_limit("flow_control.max_bytes", self.max_bytes, most=MOST_BYTES))


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group of competing consumers, and what the broker does when one of them falls silent.

    `max_crashes` isolates a message as poison after so many leases ran out; `max_delivery_attempts` gives up after so
    many failures and crashes; `backoff` delays a message whose lease ran out. `forgive_outages` moves open leases
    forward once when no process maintained the group for longer than a lease.
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
        """Refuse impossible values; what is meant to be without end becomes the largest."""
        group_name(self.name)
        for setting in ("max_crashes", "max_delivery_attempts"):
            force_setattr(self, setting, as_limit(setting, getattr(self, setting)))
        for setting in ("message_ordering", "forgive_outages"):
            as_flag(setting, getattr(self, setting))
        force_setattr(self, "overflow", as_choice("overflow", self.overflow, Overflow))
        if not isinstance(self.flow_control, FlowControl):
            raise InvalidSetting("flow_control", self.flow_control, "a FlowControl")
        if self.backoff is not None and not isinstance(self.backoff, Backoff):
            raise InvalidSetting("backoff", self.backoff, "a Backoff, or none")


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
    journal_attributes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse impossible values; what is meant to be without end becomes the largest."""
        queue_name(self.name)
        if self.dead_letter_queue is not None:
            queue_name(self.dead_letter_queue)
            if self.dead_letter_queue == self.name:
                raise InvalidSetting("dead_letter_queue", self.name, "the name of another queue")
        for setting, most in _LIMITS:
            force_setattr(self, setting, as_limit(setting, getattr(self, setting), most=most))
        force_setattr(self, "journal_max_bytes", as_count("journal_max_bytes", self.journal_max_bytes, most=MOST_BYTES))
        force_setattr(self, "min_replicas", as_count("min_replicas", self.min_replicas, least=0))
        force_setattr(self, "priority", as_whole("priority", self.priority))
        force_setattr(self, "type", as_choice("type", self.type, QueueType))
        force_setattr(self, "journal_body", as_choice("journal_body", self.journal_body, JournalBody))
        self._check_times()
        force_setattr(self, "journal_attributes", as_names_of_attributes(self.journal_attributes))
        if type(self.lanes) is not int or self.lanes not in {1, len(Lane)}:
            raise InvalidSetting("lanes", self.lanes, f"1 or {len(Lane)}")
        if type(self.partitions) is not int or not 1 <= self.partitions <= MAX_PARTITIONS:
            raise InvalidSetting("partitions", self.partitions, f"1 to {MAX_PARTITIONS}")
        for setting, _ in _LIMITS:
            limit = getattr(self, setting)
            if limit is not None and limit < self.partitions:
                raise InvalidSetting(setting, limit, f"{self.partitions} or more: each partition has its share of it")

    def _check_times(self) -> None:
        if self.ttl is not None:
            force_setattr(self, "ttl", as_time_setting("ttl", self.ttl))
            if milliseconds(self.ttl) <= 0:
                raise InvalidSetting("ttl", self.ttl, "more than 0")
        for setting in ("dedup_window", "journal_keep"):
            force_setattr(self, setting, as_time_setting(setting, getattr(self, setting)))


GROUP_FIXED: Final = ("message_ordering",)
QUEUE_FIXED: Final = ("lanes",)
"""Settings that cannot change while messages are there: where they wait depends on them."""


def changed_setting(old: msgspec.Struct, new: msgspec.Struct, fixed: tuple[str, ...]) -> str | None:
    """Return the first of the `fixed` settings in which two specs differ."""
    return next((setting for setting in fixed if getattr(old, setting) != getattr(new, setting)), None)
