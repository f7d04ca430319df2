"""Schedules that recur: adding and changing them, and taking back what a change makes void."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from godwit.brokers.contract import QueueStats
from godwit.core.clock import Clock, from_ms
from godwit.core.errors import AlreadyExistsError, InvalidSchedule, QueueNotFound, ScheduleNotFound
from godwit.core.messages.checks import check_fields
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Kind, Message, Scheduling
from godwit.core.names import new_message_id
from godwit.core.schedule.rules import check_name, checked_rule, next_fire_ms, preview
from godwit.core.schedule.schedules import Misfire, Rule, Schedule, ScheduleStatus
from godwit.core.settings import SchedulerSettings
from godwit.runtime.scheduler.sender import Sender
from godwit.store.schedules import Schedules, Voided

_replace = msgspec.structs.replace
_ENDED = (ScheduleStatus.CANCELLED, ScheduleStatus.DONE)


class RecurringSchedules:
    """Stores rules; each change is a new version, under which nothing planned by the old one counts any more."""

    def __init__(
        self,
        schedules: Schedules,
        sender: Sender,
        *,
        prepare: Callable[[Message], Envelope],
        settings: SchedulerSettings,
        tick: Callable[[], Awaitable[object]],
        declared: Callable[[], Awaitable[list[QueueStats]]],
        clock: Clock,
    ) -> None:
        self._schedules, self._sender, self._prepare, self._declared = schedules, sender, prepare, declared
        self._settings, self._tick, self._clock = settings, tick, clock

    async def add(self, message: Message, rule: Rule, *, schedule_id: str | None) -> Schedule:
        """Store a new schedule."""
        now_ms = self._clock.now_ms()
        checked_rule(rule, now_ms=now_ms, max_future=self._settings.max_future)
        envelope = self._template(message)
        await self._check_declared(envelope.queue)
        schedule = Schedule(
            id=new_message_id() if schedule_id is None else check_name("id", schedule_id),
            queue=envelope.queue,
            message=envelope.body,
            rule=rule,
            next_fire_at=_instant(next_fire_ms(rule, now_ms)),
        )
        if not await self._schedules.add(schedule):
            raise AlreadyExistsError("Schedule", schedule.id, "rule or message")
        await self._soon(schedule)
        return schedule

    async def put(self, message: Message, rule: Rule, *, schedule_id: str) -> Schedule:
        """Add a schedule, or change the one that is there to what is given."""
        found = await self._schedules.get(check_name("id", schedule_id))
        if found is None:
            try:
                return await self.add(message, rule, schedule_id=schedule_id)
            except AlreadyExistsError:  # another process was quicker
                found = await self.get(schedule_id)
        checked_rule(rule, now_ms=self._clock.now_ms(), max_future=self._settings.max_future)
        envelope = self._template(message)
        same = found.queue == envelope.queue and _content(found.message) == _content(envelope.body)
        if found.status in _ENDED or (same and found.rule == rule):
            return found
        template = found.message if same else envelope.body
        if not same:
            await self._check_declared(envelope.queue)
        return await self._change(found, rule=rule, queue=envelope.queue, message=template)

    async def update(self, schedule_id: str, message: Message | None, changes: dict[str, Any]) -> Schedule:
        """Change a schedule's message, or fields of its rule."""
        found = _open(await self.get(schedule_id))
        unknown = sorted(set(changes) - set(Rule.__struct_fields__))
        if unknown:
            raise InvalidSchedule("change", f"names {unknown}", f"Use {', '.join(Rule.__struct_fields__)}.")
        if "misfire" in changes:
            changes["misfire"] = misfire_of(changes["misfire"])
        rule = _replace(found.rule, **changes)
        checked_rule(rule, now_ms=self._clock.now_ms(), max_future=self._settings.max_future)
        envelope = None if message is None else self._template(message)
        return await self._change(
            found,
            rule=rule,
            queue=found.queue if envelope is None else envelope.queue,
            message=found.message if envelope is None else envelope.body,
        )

    async def become(self, found: Schedule, status: ScheduleStatus) -> bool:
        """Pause, resume or cancel a schedule; say whether that changed it."""
        if found.status is status:
            return False
        await self._change(_open(found), status=status)
        return True

    async def get(self, schedule_id: str) -> Schedule:
        """Return a schedule; raises `ScheduleNotFound`."""
        found = await self._schedules.get(schedule_id)
        if found is None:
            raise ScheduleNotFound(schedule_id)
        return found

    async def preview(self, schedule_id: str, count: int) -> list[datetime]:
        """Return the next times of a schedule, beyond those already planned."""
        found = await self.get(schedule_id)
        if found.status is not ScheduleStatus.ACTIVE:
            return []
        most = found.rule.max_occurrences
        rule = found.rule if most is None else _replace(found.rule, max_occurrences=max(0, most - found.occurrences))
        return preview(rule, after_ms=self._clock.now_ms(), count=count)

    async def _check_declared(self, queue: str) -> None:
        """Refuse a queue that does not exist: its firings would fail one after the other, later."""
        known = tuple(sorted(one.name for one in await self._declared()))
        if queue not in known:
            raise QueueNotFound(queue, known)

    def _template(self, message: Message) -> Envelope:
        check_fields(message)
        if message.expires_at is not None:
            raise InvalidSchedule(
                "expires_at", "is set on a message that recurs", "Give its queue a ttl, which counts from each firing."
            )
        return self._prepare(unscheduled(message))

    async def _change(self, found: Schedule, **changes: Any) -> Schedule:
        after = _replace(found, **changes, version=found.version + 1)
        now = from_ms(self._clock.now_ms())
        next_ms = next_fire_ms(after.rule, self._clock.now_ms()) if after.status is ScheduleStatus.ACTIVE else None
        after = _replace(after, next_fire_at=_instant(next_ms))
        voided: Voided | None = await self._schedules.change(after, now=now)
        if voided is None:  # another process changed it meanwhile: decide again on what is there now
            return await self._change(await self.get(found.id), **changes)
        await self._sender.take_back(voided.sent, for_good=False)
        await self._soon(after)
        return after

    async def _soon(self, schedule: Schedule) -> None:
        """Send what fires before the next tick would see it."""
        due, now = schedule.next_fire_at, from_ms(self._clock.now_ms())
        if due is not None and due - now <= self._settings.precision + timedelta(minutes=1):
            await self._tick()


def unscheduled(message: Message) -> Message:
    """Return a message without its times: they belong to the schedule now."""
    if message.kind is Kind.IMMEDIATE:
        raise InvalidSchedule("kind", "is immediate", "Publish it (enqueue), or schedule another kind.")
    kind = Kind.STANDARD if message.kind in (Kind.SCHEDULED, Kind.RECURRING) else message.kind
    campaign = message.scheduling.campaign if message.scheduling is not None else None
    scheduling = None if campaign is None else Scheduling(campaign=campaign)
    if message.kind is kind and message.scheduling == scheduling:
        return message
    return _replace(message, kind=kind, scheduling=scheduling)


def misfire_of(word: Misfire | str) -> Misfire:
    """Return the policy a word names."""
    try:
        return Misfire(word)
    except ValueError:
        raise InvalidSchedule("misfire", f"is {word!r}", f"Use {', '.join(Misfire)}.") from None


def _open(found: Schedule) -> Schedule:
    if found.status in _ENDED:
        raise InvalidSchedule("status", f"of {found.id!r} is {found.status}", "It fires no more; add a new schedule.")
    return found


def _instant(instant_ms: int | None) -> datetime | None:
    return None if instant_ms is None else from_ms(instant_ms)


def _content(body: bytes) -> dict[str, Any]:
    """Return a template without what differs each time that a message is made: its id, time and producer."""
    found: dict[str, Any] = msgspec.json.decode(body)
    metadata = found.get("metadata") or {}
    found["metadata"] = {key: value for key, value in metadata.items() if key not in {"source", "correlation_id"}}
    return {key: value for key, value in found.items() if key not in {"id", "created_at"}}
