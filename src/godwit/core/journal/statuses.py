"""The status words of the state tables: projections of the lifecycle, ordered from least to most finished."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from godwit.core.journal.lifecycle import State


class Status(StrEnum):
    """Where a message stands, in the words of `queue_messages`; a message is as far as its least finished copy."""

    SCHEDULED = "scheduled"
    PENDING = "pending"
    PROCESSING = "processing"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    COMPLETED = "completed"


STATUS_OF: Final[dict[State, Status]] = {
    State.SCHEDULED: Status.SCHEDULED,
    State.READY: Status.PENDING,
    State.DELAYED: Status.PENDING,
    State.LEASED: Status.PROCESSING,
    State.DONE: Status.COMPLETED,
    State.DEAD: Status.FAILED,
    State.EXPIRED: Status.EXPIRED,
    State.CANCELLED: Status.CANCELLED,
}
DEAD: Final = frozenset({Status.FAILED, Status.EXPIRED})
"""Statuses of copies that are given up on but still there: they can be replayed or discarded."""
_RANK: Final = {status: rank for rank, status in enumerate(Status)}


def least_finished(statuses: Iterable[Status]) -> Status:
    """Return the one that still has the most before it."""
    return min(statuses, key=_RANK.__getitem__)


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message stands in one group."""

    queue: str
    group: str
    status: Status
    attempts: int
    failures: int
    crashes: int
    retry_count: int
    worker: str | None = None
    last_attempt: datetime | None = None
    next_retry: datetime | None = None
    lease_until: datetime | None = None
    processed_at: datetime | None = None
    run_ms: int | None = None
    error_kind: str | None = None
    error_fingerprint: str | None = None
    result: Any = None


class MessageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message stands: as far as its least finished copy, with the largest counters of all copies."""

    id: str
    queue: str
    type: str
    priority: int
    status: Status
    retry_count: int
    max_retries: int
    created_at: datetime | None
    updated_at: datetime | None
    scheduled_at: datetime | None = None
    expires_at: datetime | None = None
    processed_at: datetime | None = None
    groups: tuple[GroupStatus, ...] = ()

    @property
    def attempts(self) -> int:
        """How often it was delivered, in the group where it was delivered most."""
        return max((group.attempts for group in self.groups), default=0)

    @property
    def last_attempt(self) -> datetime | None:
        """When it was last delivered."""
        return max((group.last_attempt for group in self.groups if group.last_attempt is not None), default=None)

    @property
    def next_retry(self) -> datetime | None:
        """When it is tried again, if it waits for that."""
        return min((group.next_retry for group in self.groups if group.next_retry is not None), default=None)


def status_at(status: Status, ready_at: datetime | None, now: datetime) -> Status:
    """Return the status as of now: no event tells that a scheduled copy has become due."""
    due = status is Status.SCHEDULED and ready_at is not None and ready_at <= now
    return Status.PENDING if due else status
