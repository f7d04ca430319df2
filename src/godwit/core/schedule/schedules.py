"""Schedules as values: what recurs, one firing of it, and how each firing is known.

A *schedule* is a rule that recurs. A *firing* is one message due at one time, whether a rule, a campaign or a single
call asked for it; its id is made from what asked for it, so that asking twice is asking once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import blake2b, sha1
from typing import Final
from uuid import UUID, uuid5
from zlib import crc32

import msgspec

from godwit.core.clock import milliseconds
from godwit.core.names import UUID_VARIANT, MessageId, QueueName

IDS: Final = UUID("6f1d5a5e-0a0b-5d53-9c0b-6a2c3f6f7a10")
NEAR: Final = 2
"""The last characters of a key that do not decide where in an index it lies: of numbers, a hundred lie together."""


class Misfire(StrEnum):
    """What happens to firings whose time passed while no scheduler ran."""

    FIRE_ONCE = "fire_once"
    SKIP = "skip"
    CATCH_UP = "catch_up"


class ScheduleStatus(StrEnum):
    """Where a schedule stands."""

    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"


class FiringStatus(StrEnum):
    """Where a firing stands: created -> queued (claimed, perhaps published) -> published.

    A refused one waits to be tried again; a cancelling one may still be in the broker.
    """

    CREATED = "created"
    QUEUED = "queued"
    PUBLISHED = "published"
    REFUSED = "refused"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """When a schedule fires: an expression in a zone, from `starts_at` to `ends_at`, so many times."""

    cron: str
    timezone: str = "UTC"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    max_occurrences: int | None = None
    jitter: timedelta = timedelta(0)
    misfire: Misfire = Misfire.FIRE_ONCE


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule with its message (JSON, the template of each firing's) and how far it has got.

    `version` counts changes; firings of an older version are void.
    """

    id: str
    queue: QueueName
    message: bytes
    rule: Rule
    status: ScheduleStatus = ScheduleStatus.ACTIVE
    next_fire_at: datetime | None = None
    last_fire_at: datetime | None = None
    occurrences: int = 0
    skipped: int = 0
    version: int = 1
    problem: str | None = None
    """Why it could not be planned at the last look; until that is mended it does not fire."""


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """A message due at one time. `queued_at` is when it was first claimed."""

    id: UUID
    queue: QueueName
    message_id: MessageId
    fire_at: datetime
    deliver_at: datetime
    message: bytes = b""
    schedule_id: str | None = None
    campaign: str | None = None
    key: str | None = None
    status: FiringStatus = FiringStatus.CREATED
    queued_at: datetime | None = None
    published_at: datetime | None = None
    tries: int = 0
    error: str | None = None


def jitter_ms(schedule_id: str, fire_ms: int, window: timedelta) -> int:
    """Return how much later than its time a firing is delivered: the same in every process."""
    window_ms = milliseconds(window)
    if not window_ms:
        return 0
    digest = blake2b(f"{schedule_id}\0{fire_ms}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % window_ms


def firing_id(schedule_id: str, version: int, fire_ms: int) -> UUID:
    """Return the id of a rule's firing: one for each time, the same in every process."""
    return uuid5(IDS, f"rule\0{schedule_id}\0{version}\0{fire_ms}")


def campaign_id(campaign: str, key: str) -> UUID:
    """Return the id of a campaign's message: one for each key."""
    return UUID(campaign_ids(campaign)(key))


def campaign_ids(campaign: str) -> Callable[[str], str]:
    """Return what makes the ids of a campaign's messages, as text.

    A UUID of version 8: its first 32 bits are the same for keys that differ in their last two characters only. Keys
    mostly come in order, and a million of them would otherwise touch every page of an index with every few thousand.
    """
    name = f"campaign\0{campaign}\0".encode()
    begun, seed = sha1(IDS.bytes + name, usedforsecurity=False), crc32(name)

    def known(key: str) -> str:
        digest = begun.copy()
        digest.update(key.encode())
        text = digest.hexdigest()
        near = crc32(key[:-NEAR].encode(), seed)
        return f"{near:08x}-{text[8:12]}-8{text[13:16]}-{UUID_VARIANT[text[16]]}{text[17:20]}-{text[20:32]}"

    return known


def single_id(message_id: MessageId) -> UUID:
    """Return the id of a firing that a single call asked for."""
    return uuid5(IDS, f"message\0{message_id}")
