"""The status words of the minute scheduler (specification 002) as projections of a firing and of its message."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from godwit.core.journal.statuses import Status
from godwit.core.schedule.schedules import Firing, FiringStatus


class MinuteStatus(StrEnum):
    """Where a scheduled message stands, as a birthday service calls it."""

    CREATED = "CREATED"
    QUEUED = "QUEUED"
    SENDING = "SENDING"
    SENT = "SENT"
    FAILED = "FAILED"


BEFORE_THE_BROKER: Final = {
    FiringStatus.CREATED: MinuteStatus.CREATED,
    FiringStatus.PAUSED: MinuteStatus.CREATED,
    FiringStatus.REFUSED: MinuteStatus.CREATED,
    FiringStatus.QUEUED: MinuteStatus.QUEUED,
    FiringStatus.CANCELLING: MinuteStatus.FAILED,
    FiringStatus.CANCELLED: MinuteStatus.FAILED,
    FiringStatus.PUBLISHED: MinuteStatus.QUEUED,
}
WITH_THE_BROKER: Final = {
    Status.SCHEDULED: MinuteStatus.QUEUED,
    Status.PENDING: MinuteStatus.QUEUED,
    Status.PROCESSING: MinuteStatus.SENDING,
    Status.COMPLETED: MinuteStatus.SENT,
    Status.FAILED: MinuteStatus.FAILED,
    Status.EXPIRED: MinuteStatus.FAILED,
    Status.CANCELLED: MinuteStatus.FAILED,
}


def minute_status(firing: Firing | None, message: Status | None) -> MinuteStatus | None:
    """Return the word for what the store knows of a firing and of its message; the message's word comes later."""
    if message is not None:
        return WITH_THE_BROKER[message]
    return None if firing is None else BEFORE_THE_BROKER[firing.status]
