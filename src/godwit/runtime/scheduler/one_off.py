"""Messages due once: kept in the store until their time is near, and moved, held or cancelled until then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from godwit.core.clock import Clock, from_ms
from godwit.core.errors import ScheduleNotFound
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Message
from godwit.core.names import MessageId
from godwit.core.schedule.rules import check_expiry
from godwit.core.schedule.schedules import Firing, single_id
from godwit.runtime.scheduler.recurrence import unscheduled
from godwit.runtime.scheduler.sender import Sender
from godwit.store.schedules import Schedules


class SingleMessages:
    """Stores a message as one firing, which is known by the message's id."""

    def __init__(
        self, schedules: Schedules, sender: Sender, *, prepare: Callable[[Message], Envelope], clock: Clock
    ) -> None:
        self._schedules, self._sender, self._prepare, self._clock = schedules, sender, prepare, clock

    async def add(self, message: Message, deliver_at: datetime) -> MessageId:
        """Store a message that is due at a time to come and return its id."""
        check_expiry(message.expires_at, deliver_at)
        envelope = self._prepare(unscheduled(message))
        firing = Firing(
            id=single_id(envelope.id),
            queue=envelope.queue,
            message_id=envelope.id,
            fire_at=deliver_at,
            deliver_at=deliver_at,
            message=envelope.body,
        )
        await self._schedules.put([firing])
        return envelope.id

    async def move(self, message_id: MessageId, deliver_at: datetime) -> None:
        """Give a message another time; raises `ScheduleNotFound` when it is no longer in the store."""
        if not await self._schedules.move(single_id(message_id), deliver_at):
            raise ScheduleNotFound(message_id)

    async def hold(self, message_id: MessageId, *, paused: bool) -> None:
        """Pause a message or let it go on; raises `ScheduleNotFound` when it is no longer in the store."""
        if not await self._schedules.hold(single_id(message_id), paused=paused):
            raise ScheduleNotFound(message_id)

    async def find(self, message_id: MessageId) -> Firing | None:
        """Return what is known of a message, or of one firing of a schedule or campaign."""
        return await self._schedules.find(single_id(message_id)) or await self._found(message_id)

    async def cancel(self, message_id: MessageId) -> bool:
        """Cancel what `find` finds; say whether that prevented anything. Raises `ScheduleNotFound`."""
        firing = await self.find(message_id)
        if firing is None:
            raise ScheduleNotFound(message_id)
        voided = await self._schedules.void([firing.id], now=from_ms(self._clock.now_ms()))
        had = await self._sender.take_back(voided.sent, for_good=False)
        return had > 0 or voided.count > len(voided.sent)

    async def _found(self, message_id: MessageId) -> Firing | None:
        known = _uuid(message_id)
        return None if known is None else await self._schedules.find(known)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
