"""The scheduler's clockwork: each tick plans what recurs, sends what is due soon, and ends what dead schedulers left.

Everything due within the look-ahead is published with its delivery time, so that the broker delivers it to the
millisecond and schedulers may be down for that long without anything being late.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Final

import msgspec

from godwit.core.clock import Clock, from_ms, milliseconds
from godwit.core.error_text import error_text
from godwit.core.errors import GodwitError
from godwit.core.fault_points import fault_point
from godwit.core.logs import get_logger
from godwit.core.schedule.cron import parse_cron
from godwit.core.schedule.rules import plan
from godwit.core.schedule.schedules import Firing, Schedule, ScheduleStatus, firing_id, jitter_ms
from godwit.core.schedule.times import next_fire
from godwit.core.schedule.zones import zone
from godwit.core.settings import SchedulerSettings
from godwit.runtime.scheduler.health import SchedulerHealth
from godwit.runtime.scheduler.sender import Sender
from godwit.store.schedules import ScheduleAdvance, Schedules

RULES_AT_ONCE: Final = 100
FIRES_AT_ONCE: Final = 1_000
"""Times planned of one rule in one transaction."""

FIRINGS_AT_ONCE: Final = 1_000
CLAIM_LEASE: Final = timedelta(minutes=1)
GRACE: Final = timedelta(minutes=1)
"""A firing that is at most so late is not missed, whatever the tick."""

LONGEST_NAP: Final = timedelta(seconds=5)

_replace = msgspec.structs.replace

log = get_logger(__name__)


class Ticked(msgspec.Struct, frozen=True, kw_only=True):
    """What one tick did: rules advanced, firings sent, firings sent after a scheduler's death, firings taken back."""

    planned: int
    sent: int
    swept: int
    cancelled: int


class Ticker:
    """`tick()` is one step, `run()` the loop; any number of them may run over one store and broker."""

    def __init__(
        self,
        schedules: Schedules,
        sender: Sender,
        health: SchedulerHealth,
        *,
        owner: str,
        settings: SchedulerSettings,
        retention: timedelta,
        clock: Clock,
        lease: timedelta = CLAIM_LEASE,
    ) -> None:
        self._schedules, self._sender, self._health = schedules, sender, health
        self.owner, self._settings, self._retention = owner, settings, retention
        self._clock, self._lease = clock, lease
        self._grace = max(GRACE, settings.precision)
        self._stopping = asyncio.Event()
        self._cleaned_ms = clock.now_ms()

    async def tick(self) -> Ticked:
        """Send everything that is due within the look-ahead."""
        now_ms = self._clock.now_ms()
        until_ms = now_ms + milliseconds(self._settings.look_ahead)
        self._sender.begin_tick()
        planned = await self._plan(now_ms, until_ms)
        fault_point("scheduler.planned")
        sent = await self._send(until_ms)
        swept, cancelled = await self._sweep()
        backlog = await self._schedules.backlog(now=from_ms(now_ms))
        away = {queue: error_text(error) for queue, error in self._sender.away.items()}
        await self._health.ticked(backlog, away=away)
        await self._clean(now_ms)
        return Ticked(planned=planned, sent=sent, swept=swept, cancelled=cancelled)

    async def run(self) -> None:
        """Tick at the moments of the minute schedule until `stop()`; a store or broker that is down is tried again."""
        while not self._stopping.is_set():
            try:
                ticked = await self.tick()
                log.debug("ticked", planned=ticked.planned, sent=ticked.sent, swept=ticked.swept)
            except GodwitError as error:
                log.warning("tick failed", error=str(error), scheduler=self.owner)
                self._health.failed(error)
            await self._rest(next_tick_ms(self._settings, self._clock.now_ms()))
        await self._health.stopped()

    def stop(self) -> None:
        """Let `run()` return after the tick under way."""
        self._stopping.set()

    async def _rest(self, until_ms: int) -> None:
        while not self._stopping.is_set() and (left_ms := until_ms - self._clock.now_ms()) > 0:
            # Not all of it at once: the clock may be set meanwhile.
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_ms / 1_000, LONGEST_NAP.total_seconds())):
                    await self._stopping.wait()

    async def _plan(self, now_ms: int, until_ms: int) -> int:
        """Turn rules into firings; a rule that fires very often is looked at several times."""
        until, planned = from_ms(until_ms), 0
        troubled: set[str] = set()

        def decide(schedule: Schedule) -> ScheduleAdvance:
            try:
                return self._advance(schedule, now_ms, until_ms)
            except Exception as error:  # noqa: BLE001 - one rule, whatever is wrong with it, must not stop the others
                troubled.add(schedule.id)
                log.warning("schedule not planned", schedule=schedule.id, error=error_text(error))
                return ScheduleAdvance(schedule=_replace(schedule, problem=error_text(error)))

        while True:
            before = len(troubled)
            count = await self._schedules.plan(
                until=until, limit=RULES_AT_ONCE, decide=decide, without=sorted(troubled)
            )
            planned += count - (len(troubled) - before)
            if not count:
                return planned

    def _advance(self, schedule: Schedule, now_ms: int, until_ms: int) -> ScheduleAdvance:
        found = plan(schedule, now_ms=now_ms, until_ms=until_ms, grace=self._grace, most=FIRES_AT_ONCE)
        fires = found.fires_ms
        last_at = from_ms(fires[-1]) if fires else schedule.last_fire_at
        after = _replace(
            schedule,
            status=schedule.status if found.next_fire_ms is not None else ScheduleStatus.DONE,
            next_fire_at=None if found.next_fire_ms is None else from_ms(found.next_fire_ms),
            last_fire_at=last_at,
            occurrences=schedule.occurrences + len(fires),
            skipped=schedule.skipped + found.skipped,
            problem=None,
        )
        return ScheduleAdvance(schedule=after, firings=tuple(firing_at(schedule, fire) for fire in fires))

    async def _send(self, until_ms: int) -> int:
        sent = 0
        while True:
            now = from_ms(self._clock.now_ms())
            firings = await self._schedules.claim(
                now=now, until=from_ms(until_ms), limit=FIRINGS_AT_ONCE, owner=self.owner, lease=self._lease
            )
            if not firings:
                return sent
            fault_point("scheduler.claimed")
            sent += await self._sender.send(firings)

    async def _sweep(self) -> tuple[int, int]:
        """Finish what schedulers left behind that died: firings in doubt, firings being cancelled."""
        swept = 0
        await self._schedules.wake(now=from_ms(self._clock.now_ms()), limit=FIRINGS_AT_ONCE)
        while True:
            now = from_ms(self._clock.now_ms())
            firings = await self._schedules.claim_again(
                now=now, limit=FIRINGS_AT_ONCE, owner=self.owner, lease=self._lease
            )
            if not firings:
                break
            swept += await self._sender.send_again(firings)
        return swept, await self._take_back()

    async def _take_back(self) -> int:
        """Cancel in the broker what was cancelled in the store; what cannot be now does not hide what can."""
        cancelled, limit = 0, FIRINGS_AT_ONCE
        while left := await self._schedules.cancelling(now=from_ms(self._clock.now_ms()), limit=limit):
            possible = [one for one in left if one.queue not in self._sender.away]
            if possible:
                cancelled += len(possible)
                await self._sender.take_back(possible)
            elif len(left) < limit:
                break
            else:
                limit *= 2
        return cancelled

    async def _clean(self, now_ms: int) -> None:
        if now_ms - self._cleaned_ms >= milliseconds(self._settings.cleanup_interval):
            self._cleaned_ms = now_ms
            await self._schedules.prune(before=from_ms(now_ms) - self._retention)


def firing_at(schedule: Schedule, fire_ms: int) -> Firing:
    """Return a rule's firing at one of its times."""
    known = firing_id(schedule.id, schedule.version, fire_ms)
    return Firing(
        id=known,
        queue=schedule.queue,
        message_id=str(known),
        fire_at=from_ms(fire_ms),
        deliver_at=from_ms(fire_ms + jitter_ms(schedule.id, fire_ms, schedule.rule.jitter)),
        message=schedule.message,
        schedule_id=schedule.id,
    )


def next_tick_ms(settings: SchedulerSettings, now_ms: int) -> int:
    """Return the next moment of the minute schedule (UTC) that does not come sooner than the precision allows.

    Ticks lie on a grid from 1970, so that many schedulers look at about the same time and each finds little.
    """
    cron, utc = parse_cron(settings.minute_schedule), zone("UTC")
    step = max(1, milliseconds(settings.precision) // 1_000)
    earliest = -(-(now_ms // 1_000 + 1) // step) * step
    found = next_fire(cron, utc, earliest - 1)
    return (found if found is not None else earliest) * 1_000
