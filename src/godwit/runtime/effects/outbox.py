"""The outbox: messages written in an application's own transaction, forwarded once it is committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from godwit.brokers.contract import Receipt
from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms
from godwit.core.errors import BrokerError, GodwitError, InvalidMessage, PartialPublish
from godwit.core.fault_points import fault_point
from godwit.core.logs import get_logger
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Message, Scheduling
from godwit.core.names import MessageId
from godwit.store.effects import Outbox, Waiting

BATCH: Final = 500
HOLD: Final = timedelta(seconds=60)
IDLE: Final = timedelta(milliseconds=200)
LONGEST_IDLE: Final = timedelta(seconds=0.95)
"""How long a message may lie in an outbox that was empty for a while."""
PAUSE: Final = timedelta(seconds=1)
"""How long a forwarder waits after an error."""
_LONGEST_DELAY: Final = timedelta(minutes=5)

log = get_logger(__name__)


class OutboxWriter:
    """Publishes inside one transaction of the application; nothing leaves before it commits."""

    def __init__(self, outbox: Outbox, connection: Any, prepare: Callable[[Message], Envelope]) -> None:
        self._outbox, self._connection, self._prepare = outbox, connection, prepare

    async def enqueue(
        self, message: Message, *, scheduled_at: datetime | None = None, expires_at: datetime | None = None
    ) -> MessageId:
        """Write a message to the outbox and return its id; the two times override the message's own."""
        changes: dict[str, Any] = {}
        if scheduled_at is not None:
            changes["scheduling"] = msgspec.structs.replace(message.scheduling or Scheduling(), deliver_at=scheduled_at)
        if expires_at is not None:
            changes["expires_at"] = expires_at
        (written,) = await self.enqueue_many([msgspec.structs.replace(message, **changes) if changes else message])
        return written

    async def enqueue_many(self, messages: Iterable[Message]) -> list[MessageId]:
        """Write messages to the outbox; one that cannot be accepted refuses them all."""
        envelopes = []
        for index, message in enumerate(messages):
            try:
                envelopes.append(self._prepare(message))
            except InvalidMessage as error:
                raise error.at(index) from error
        if envelopes:
            await self._outbox.put(self._connection, envelopes)
        return [envelope.id for envelope in envelopes]


class OutboxForwarder:
    """Publishes what waits in the outbox; any number may run."""

    def __init__(
        self,
        outbox: Outbox,
        publish: Callable[[Sequence[Envelope]], Awaitable[list[Receipt]]],
        *,
        is_known: Callable[[MessageId], Awaitable[bool]],
        window_of: Callable[[str], timedelta],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._outbox = outbox
        self._publish = publish
        self._is_known = is_known
        self._window_of = window_of
        self._idle = IDLE
        self._clock = clock

    async def tick(self) -> int:
        """Forward one batch and return how many messages left the outbox."""
        claimed = await self._outbox.claim(hold=HOLD, limit=BATCH)
        if not claimed:
            return 0
        fault_point("outbox.claimed")
        # Tried before and beyond the dedup window: the broker would not recognise it, so ask first.
        known = [one for one in claimed if self._is_doubtful(one) and await self._is_known(one.envelope.id)]
        numbers = {one.number for one in known}
        done = known + await self._forward([one for one in claimed if one.number not in numbers])
        fault_point("outbox.published")
        # Deleting comes after publishing: a crash in between publishes again, recognised by the id, and loses nothing.
        await self._outbox.forwarded([one.number for one in done])
        return len(done)

    def _is_doubtful(self, one: Waiting) -> bool:
        if one.tried_before is None:
            return False
        return from_ms(self._clock.now_ms()) - one.tried_before >= self._window_of(one.envelope.queue)

    async def _forward(self, waiting: list[Waiting]) -> list[Waiting]:
        """Publish together; when that is refused, one by one, so that only the one to blame stays, and its key."""
        if not waiting:
            return []
        try:
            await self._publish([one.envelope for one in waiting])
        except BrokerError as error:
            await self._postpone(waiting, error)
            raise
        except GodwitError:
            pass
        else:
            return waiting
        done, held_back = [], dict[tuple[str, str], GodwitError]()
        for one in waiting:
            key = (one.envelope.queue, one.envelope.ordering_key or "")
            if (reason := held_back.get(key)) is not None:
                await self._postpone([one], reason)
                continue
            try:
                await self._publish([one.envelope])
                done.append(one)
            except GodwitError as error:
                if key[1]:
                    held_back[key] = error
                await self._postpone([one], error)
        return done

    async def _postpone(self, waiting: list[Waiting], error: GodwitError) -> None:
        cause = error.__cause__ if isinstance(error, PartialPublish) and error.__cause__ is not None else error
        for one in waiting:
            delay = min(_LONGEST_DELAY, timedelta(seconds=2 ** min(one.tries - 1, 10)))
            log.warning("outbox message not taken", message_id=one.envelope.id, error=str(cause), tries=one.tries)
            await self._outbox.postpone(one.number, delay=delay, error=str(cause))

    async def turn(self) -> timedelta:
        """Forward one batch and return how long to wait for the next: longer while the outbox stays empty."""
        forwarded = await self.tick()
        self._idle = IDLE if forwarded else min(self._idle * 3 / 2, LONGEST_IDLE)
        return timedelta(0) if forwarded == BATCH else self._idle
