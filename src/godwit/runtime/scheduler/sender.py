"""From a claimed firing to a published message, and the note of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, Final
from uuid import UUID

import msgspec

from godwit.brokers.contract import Broker
from godwit.core.clock import Clock, from_ms, to_ms
from godwit.core.errors import BrokerClosed, BrokerError, GodwitError, NotFoundError, PartialPublish, QueueFull
from godwit.core.fault_points import fault_point
from godwit.core.logs import get_logger
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.marks import with_attributes
from godwit.core.messages.message import Kind, Message, Scheduling
from godwit.core.names import MessageId, QueueName
from godwit.core.queues import QueueSpec
from godwit.core.schedule.schedules import Firing
from godwit.runtime.scheduler.recovery import AcceptedMessages
from godwit.store.schedules import Schedules, Sent

AGAIN_WHEN_FULL: Final = timedelta(seconds=5)
AGAIN_WHEN_REFUSED: Final = timedelta(minutes=1)
WINDOW_MARGIN: Final = timedelta(seconds=30)
"""Clocks of schedulers and brokers may differ by this much."""

_decoder = msgspec.json.Decoder(Message)
_replace = msgspec.structs.replace

log = get_logger(__name__)


class Sender:
    """Publishes firings under their own ids, then confirms them; any number of senders may do so at once.

    Publish before confirming: a death between the two publishes again, which the broker recognises, never not at all.
    """

    def __init__(
        self,
        broker: Broker,
        schedules: Schedules,
        *,
        owner: str,
        spec_of: Callable[[QueueName], QueueSpec],
        accepted: AcceptedMessages,
        clock: Clock,
    ) -> None:
        self._broker, self._schedules, self.owner = broker, schedules, owner
        self._spec_of, self._accepted, self._clock = spec_of, accepted, clock
        self._were_away: frozenset[QueueName] = frozenset()
        self.away: dict[QueueName, BrokerError] = {}
        """Queues whose broker did not answer since the tick began: their firings stay in doubt, others go on."""

    def begin_tick(self) -> None:
        """Try again what was away; in this tick after the other queues, which it must not keep waiting."""
        self._were_away, self.away = frozenset(self.away), {}

    async def send(self, firings: Sequence[Firing]) -> int:
        """Publish firings that this scheduler has just claimed; return how many the broker has now."""
        return await self._by_queue(firings, self._publish)

    async def _by_queue(
        self, firings: Iterable[Firing], step: Callable[[QueueName, list[Firing]], Awaitable[int]]
    ) -> int:
        """Take a step with the firings of each queue; one whose broker is away does not stop the others."""
        done = 0
        order = sorted(firings, key=lambda firing: (firing.queue in self._were_away, firing.queue))
        for queue, several in groupby(order, key=_queue):
            if queue in self.away:
                continue
            try:
                done += await step(queue, list(several))
            except BrokerClosed:
                raise
            except BrokerError as error:
                log.warning("firings wait for their queue's broker", queue=queue, error=str(error))
                self.away[queue] = error
        return done

    async def send_again(self, firings: Sequence[Firing]) -> int:
        """Publish firings that a scheduler claimed and did not confirm; return how many the broker has now."""
        sure = [firing for firing in firings if self._is_recognised(firing)]
        sent = await self.send(sure)
        doubtful = [firing for firing in firings if not self._is_recognised(firing)]
        return sent + await self._by_queue(doubtful, self._publish_unknown)

    async def _publish_unknown(self, queue: QueueName, waiting: list[Firing]) -> int:
        """Ask which of a queue's firings its broker has accepted, and publish the others."""
        known = await self._accepted.known(queue, [firing.message_id for firing in waiting])
        there = [firing.id for firing in waiting if firing.message_id in known]
        log.info("firings in doubt", queue=queue, there=len(there), asked=len(waiting))
        sent = await self._confirm(there)
        left = [firing for firing in waiting if firing.message_id not in known]
        return sent + (await self._publish(queue, left) if left else 0)

    def _is_recognised(self, firing: Firing) -> bool:
        """Say whether the broker would still recognise the message, had it been published at the first claim."""
        since = firing.deliver_at if firing.queued_at is None else max(firing.deliver_at, firing.queued_at)
        until_ms = to_ms(since + self._spec_of(firing.queue).dedup_window - WINDOW_MARGIN)
        return self._clock.now_ms() < until_ms

    async def _publish(self, queue: QueueName, firings: list[Firing]) -> int:
        envelopes, unusable = self._sealed(firings)
        for firing_id, why in unusable:
            await self._refuse([firing_id], why, AGAIN_WHEN_REFUSED)
        ids = {envelope.id: firing.id for envelope, firing in envelopes}
        accepted: Iterable[MessageId] = ids
        problem: Exception | None = None
        try:
            fault_point("scheduler.publishing")
            await self._broker.publish([envelope for envelope, _ in envelopes])
        except PartialPublish as error:
            accepted = error.accepted
            problem = error.__cause__ if isinstance(error.__cause__, Exception) else error
        except GodwitError as error:
            accepted, problem = (), error
        fault_point("scheduler.published")
        done = [ids[one] for one in accepted]
        sent = await self._confirm(done)
        fault_point("scheduler.confirmed")
        if problem is not None:
            await self._settle(queue, [one for one in ids.values() if one not in set(done)], problem)
        return sent

    async def _settle(self, queue: QueueName, ids: list[UUID], problem: Exception) -> None:
        """Note why the broker did not take firings; an outage leaves them in doubt until the next claim."""
        match problem:
            case QueueFull():
                await self._refuse(ids, str(problem), AGAIN_WHEN_FULL)
            case BrokerError():
                raise problem
            case NotFoundError() | GodwitError():
                log.warning("firings refused", queue=queue, count=len(ids), error=str(problem))
                await self._refuse(ids, str(problem), AGAIN_WHEN_REFUSED)
            case _:
                raise problem

    def _sealed(self, firings: list[Firing]) -> tuple[list[tuple[Envelope, Firing]], list[tuple[UUID, str]]]:
        sealed, unusable = [], []
        for firing in firings:
            try:
                names = self._spec_of(firing.queue).journal_attributes
                sealed.append((envelope_of(firing, names, now_ms=self._clock.now_ms()), firing))
            except (GodwitError, msgspec.DecodeError, msgspec.ValidationError) as error:
                unusable.append((firing.id, str(error)))
        return sealed, unusable

    async def _refuse(self, ids: Sequence[UUID], problem: str, pause: timedelta) -> None:
        again_at = from_ms(self._clock.now_ms()) + pause
        await self._schedules.release(ids, owner=self.owner, error=problem, again_at=again_at)

    async def _confirm(self, ids: Sequence[UUID]) -> int:
        """Note what the broker has; what was cancelled meanwhile is taken back from it."""
        if not ids:
            return 0
        now = from_ms(self._clock.now_ms())
        confirmed = await self._schedules.confirm(ids, owner=self.owner, now=now)
        if len(confirmed) < len(ids):
            left = [one for one in ids if one not in confirmed]
            await self.take_back(await self._schedules.cancelling(left, now=now))
        return len(confirmed)

    async def take_back(self, sent: Iterable[Sent], *, for_good: bool = True) -> int:
        """Cancel messages in the broker and note it; return how many it had.

        Without `for_good` only those it had are noted: another scheduler may be about to publish the others.
        """
        had, gone = 0, []
        for one in sorted(sent, key=lambda one: one.queue in self._were_away):
            if one.queue in self.away:
                continue
            try:
                was_there = await self._broker.cancel(one.queue, one.message_id, actor=self.owner)
            except NotFoundError:
                was_there = False
            except BrokerClosed:
                raise
            except BrokerError as error:
                if not for_good:
                    raise
                self.away[one.queue] = error
                continue
            had += was_there
            if was_there or for_good:
                gone.append(one.id)
        if gone:
            await self._schedules.cancelled(gone, now=from_ms(self._clock.now_ms()))
        return had


def envelope_of(firing: Firing, attributes: Sequence[str] = (), *, now_ms: int) -> Envelope:
    """Return a firing's message sealed for its queue: under the firing's id, due at its time.

    `attributes` are the names of those that its queue wants in the journal.
    """
    message = _decoder.decode(firing.message)
    scheduling = Scheduling(deliver_at=firing.deliver_at, schedule_id=firing.schedule_id, campaign=firing.campaign)
    changes: dict[str, Any] = {"id": firing.message_id, "queue": firing.queue, "scheduling": scheduling}
    if firing.schedule_id is not None:
        # The stored message is a template: every firing is a message of its own.
        changes |= {"kind": Kind.RECURRING, "created_at": from_ms(now_ms)}
    else:
        if message.kind is Kind.STANDARD:
            changes["kind"] = Kind.SCHEDULED
        if firing.campaign is not None:
            changes["created_at"] = from_ms(now_ms)  # planned again and again, created once
    if message.metadata.correlation_id == message.id:
        changes["metadata"] = _replace(message.metadata, correlation_id=firing.message_id)
    return with_attributes(seal(_replace(message, **changes)), message.attributes, attributes)


def _queue(firing: Firing) -> QueueName:
    return firing.queue
