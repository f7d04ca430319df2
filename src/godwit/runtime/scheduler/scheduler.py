"""MessageScheduler: messages due later, or again and again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from godwit.brokers.contract import Broker
from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms, milliseconds
from godwit.core.errors import InvalidSchedule, StoreRequired, UnknownArgument
from godwit.core.journal.statuses import MessageStatus
from godwit.core.messages.checks import check_fields
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Message, Scheduling
from godwit.core.names import MessageId, QueueName, new_message_id
from godwit.core.queues import QueueSpec
from godwit.core.schedule.minute_statuses import MinuteStatus, minute_status
from godwit.core.schedule.rules import check_due
from godwit.core.schedule.schedules import Firing, Misfire, Rule, Schedule, ScheduleStatus
from godwit.core.settings import DEFAULTS, SchedulerSettings
from godwit.runtime.scheduler.campaigns import Campaigns, Loaded, Progress, Row
from godwit.runtime.scheduler.health import (
    SchedulerEntry,
    SchedulerHealth,
    SchedulerMetrics,
    scheduler_check,
    schedulers,
)
from godwit.runtime.scheduler.lateness import ScheduleAnalytics, analysed
from godwit.runtime.scheduler.one_off import SingleMessages
from godwit.runtime.scheduler.recovery import AcceptedMessages, Ask
from godwit.runtime.scheduler.recurrence import RecurringSchedules, misfire_of
from godwit.runtime.scheduler.sender import Sender
from godwit.runtime.scheduler.ticker import Ticked, Ticker
from godwit.store.schedules import CampaignState, ScheduleBacklog, Schedules
from godwit.telemetry.health import HealthCheck

Prepare = Callable[[Message], Envelope]
Publish = Callable[[Message, datetime], Awaitable[MessageId]]
StatusOf = Callable[[MessageId], Awaitable[MessageStatus | None]]
_OWN: Final = ("starts_at", "ends_at", "max_occurrences")


class MessageScheduler:
    """Keeps schedules in the store and brings each firing to the broker in time, once.

    Any number may run over one store. `prepare` completes and checks a message as a producer would, `publish` hands
    one to the broker. Without a store only `schedule` works: the broker holds what it is given.
    """

    def __init__(
        self,
        broker: Broker,
        schedules: Schedules | None,
        *,
        prepare: Prepare,
        publish: Publish,
        settings: SchedulerSettings,
        spec_of: Callable[[QueueName], QueueSpec],
        name: str,
        retention: timedelta = DEFAULTS.monitoring.retention,
        ask: Ask | None = None,
        status_of: StatusOf | None = None,
        metrics: SchedulerMetrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._broker, self._kept, self._settings, self._clock = broker, schedules, settings, clock
        self._prepare, self._publish, self._status_of = prepare, publish, status_of
        owner = _owner_of(name)
        self.health = SchedulerHealth(broker.shared, name=name, owner=owner, clock=clock, metrics=metrics)
        if schedules is None:
            return
        accepted = AcceptedMessages(broker.journal, ask=ask)
        self._sender = Sender(broker, schedules, owner=owner, spec_of=spec_of, accepted=accepted, clock=clock)
        self._ticker = Ticker(
            schedules, self._sender, self.health, owner=owner, settings=settings, retention=retention, clock=clock
        )
        self._kept_recurring = RecurringSchedules(
            schedules,
            self._sender,
            prepare=prepare,
            settings=settings,
            tick=self._ticker.tick,
            declared=broker.stats,
            clock=clock,
        )

    @property
    def _schedules(self) -> Schedules:
        if self._kept is None:
            raise StoreRequired("Scheduling")
        return self._kept

    @property
    def _singles(self) -> SingleMessages:
        return SingleMessages(self._schedules, self._sender, prepare=self._prepare, clock=self._clock)

    @property
    def _campaigns(self) -> Campaigns:
        return Campaigns(
            self._schedules, self._sender, prepare=self._prepare, settings=self._settings, clock=self._clock
        )

    @property
    def _recurring(self) -> RecurringSchedules:
        if self._kept is None:
            raise StoreRequired("A recurring message")
        return self._kept_recurring

    @property
    def _now(self) -> datetime:
        return from_ms(self._clock.now_ms())

    def claim_apart(self, name: str) -> None:
        """Claim under a name of this process from now on: what was made before a fork is in several of them."""
        owner = _owner_of(name)
        self.health.owner = owner
        if self._kept is not None:
            self._sender.owner = self._ticker.owner = owner

    async def accept(
        self,
        message: Message,
        deliver_at: datetime | None = None,
        *,
        cron: str | None = None,
        timezone: str = "UTC",
        **options: Any,
    ) -> str:
        """Schedule a message as the arguments say, else as its own `scheduling` does; return the id to know it by."""
        check_fields(message)
        own = message.scheduling or Scheduling()
        if cron is not None or own.cron is not None:
            if deliver_at is not None:
                raise InvalidSchedule(
                    "deliver_at", "is given beside cron", "Use one of them; starts_at says from when."
                )
            own_options = {name: getattr(own, name) for name in _OWN if getattr(own, name) is not None}
            zone = timezone if cron is not None else own.timezone
            added = await self.add(message, **{**own_options, **options, "cron": cron or own.cron, "timezone": zone})
            return added.id
        due = own.deliver_at if deliver_at is None else deliver_at
        if due is None or options:
            raise InvalidSchedule("deliver_at", "is not set", "Say when it is due, or give a cron expression.")
        return await self.schedule(message, due)

    # One message, once

    async def schedule(self, message: Message, deliver_at: datetime) -> MessageId:
        """Let a message be delivered at a time to come and return its id.

        What is due within the look-ahead goes to the broker at once, as does everything when there is no store.
        """
        check_fields(message)
        due_ms = check_due(deliver_at, now_ms=self._clock.now_ms(), max_future=self._settings.max_future)
        ahead_ms = due_ms - self._clock.now_ms()
        if self._kept is None or ahead_ms <= milliseconds(self._settings.look_ahead):
            return await self._publish(message, deliver_at)
        return await self._singles.add(message, deliver_at)

    async def reschedule(self, message_id: MessageId, deliver_at: datetime) -> None:
        """Give a scheduled message another time; raises `ScheduleNotFound` when it is no longer in the store."""
        check_due(deliver_at, now_ms=self._clock.now_ms(), max_future=self._settings.max_future)
        await self._singles.move(message_id, deliver_at)

    async def firing(self, message_id: MessageId) -> Firing | None:
        """Return what is known of a scheduled message, or of one firing of a schedule or campaign."""
        return await self._singles.find(message_id)

    async def status(self, message_id: MessageId) -> MinuteStatus | None:
        """Say where a scheduled message stands: CREATED, QUEUED, SENDING, SENT or FAILED; None when it is unknown."""
        firing = await self.firing(message_id)
        message = None if self._status_of is None else await self._status_of(message_id)
        return minute_status(firing, None if message is None else message.status)

    # What recurs

    async def add(
        self,
        message: Message,
        *,
        cron: str,
        timezone: str = "UTC",
        id: str | None = None,
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
        max_occurrences: int | None = None,
        jitter: timedelta = timedelta(0),
        misfire: Misfire | str = Misfire.FIRE_ONCE,
    ) -> Schedule:
        """Let copies of a message be delivered whenever an expression fires in a zone; return the schedule.

        Times more than a minute ago are missed: `misfire` says whether the last of them is fired (`fire_once`), all
        (`catch_up`, at most 100) or none (`skip`). `jitter` delays each firing by up to that much.
        """
        rule = Rule(
            cron=cron,
            timezone=timezone,
            starts_at=starts_at,
            ends_at=ends_at,
            max_occurrences=max_occurrences,
            jitter=jitter,
            misfire=misfire_of(misfire),
        )
        return await self._recurring.add(message, rule, schedule_id=id)

    async def put(self, message: Message, *, id: str, cron: str, timezone: str = "UTC", **options: Any) -> Schedule:
        """Let the schedule `id` be as the code says: add it, or change what differs; `options` are those of `add`.

        A program that calls this whenever it starts applies its changes. One that was paused stays so, and one that was
        cancelled, or is over, is left alone.
        """
        options["misfire"] = misfire_of(options.get("misfire", Misfire.FIRE_ONCE))
        if unknown := sorted(set(options) - set(Rule.__struct_fields__)):
            raise UnknownArgument("scheduler.put()", unknown[0], ("id", *Rule.__struct_fields__))
        return await self._recurring.put(message, Rule(cron=cron, timezone=timezone, **options), schedule_id=id)

    async def update(self, schedule_id: str, *, message: Message | None = None, **changes: Any) -> Schedule:
        """Change a schedule's message, or fields of its rule; firings still to come follow the change."""
        return await self._recurring.update(schedule_id, message, changes)

    async def pause(self, schedule_id: str) -> None:
        """Let a schedule, or a scheduled message, fire no more until it is resumed; what was to come is taken back."""
        found = await self._schedules.get(schedule_id)
        if found is None:
            await self._singles.hold(schedule_id, paused=True)
        else:
            await self._recurring.become(found, ScheduleStatus.PAUSED)

    async def resume(self, schedule_id: str) -> None:
        """Let a paused schedule, or message, go on; times that passed meanwhile are not made up for."""
        found = await self._schedules.get(schedule_id)
        if found is None:
            await self._singles.hold(schedule_id, paused=False)
        else:
            await self._recurring.become(found, ScheduleStatus.ACTIVE)

    async def cancel(self, schedule_id: str) -> bool:
        """End a schedule, or a scheduled message, for good; say whether that prevented anything."""
        found = await self._schedules.get(schedule_id)
        if found is None:
            return await self._singles.cancel(schedule_id)
        return await self._recurring.become(found, ScheduleStatus.CANCELLED)

    async def get(self, schedule_id: str) -> Schedule:
        """Return a schedule; raises `ScheduleNotFound`."""
        return await self._recurring.get(schedule_id)

    async def list(
        self, *, after: str = "", limit: int = 100, status: ScheduleStatus | None = None, queue: str | None = None
    ) -> Sequence[Schedule]:
        """Return schedules by id."""
        return await self._schedules.page(after=after, limit=limit, status=status, queue=queue)

    async def upcoming(self, *, limit: int = 100, schedule_id: str | None = None) -> Sequence[Firing]:
        """Return messages that wait in the store by their time."""
        return await self._schedules.upcoming(limit=limit, schedule_id=schedule_id)

    async def preview(self, schedule_id: str, count: int = 10) -> Sequence[datetime]:
        """Return the next times of a schedule."""
        return await self._recurring.preview(schedule_id, count)

    async def analytics(
        self, schedule_id: str | None = None, *, campaign: str | None = None, since: datetime | None = None
    ) -> ScheduleAnalytics:
        """Compare planned and actual times of a schedule's firings, of a campaign's, or of all."""
        found = None if schedule_id is None else await self.get(schedule_id)
        return await analysed(self._schedules, found, campaign=campaign, since=since)

    # Campaigns

    async def schedule_many(self, campaign: str, rows: Iterable[Row], *, progress: Progress | None = None) -> Loaded:
        """Schedule a campaign's messages, each known by its key; doing it again adds only what is missing.

        Rows are read in a thread, a few thousand at a time, while others are being stored. One that cannot be scheduled
        stops the load and is named; those before it are stored, and the corrected rows can simply be loaded again.
        """
        return await self._campaigns.load(campaign, rows, progress=progress)

    async def cancel_campaign(self, campaign: str) -> int:
        """Cancel everything of a campaign that has not been delivered, and let it take no more; return how many."""
        return await self._campaigns.cancel(campaign)

    async def campaign(self, name: str) -> CampaignState:
        """Return how a campaign stands; raises `ScheduleNotFound`."""
        return await self._campaigns.state(name)

    # Running

    async def tick(self) -> Ticked:
        """Send everything that is due within the look-ahead, and finish what dead schedulers left behind."""
        return await self._running.tick()

    async def run(self) -> None:
        """Tick at the moments the configuration says until `stop()`."""
        await self._running.run()

    def stop(self) -> None:
        """Let `run()` return after the tick under way."""
        self._running.stop()

    def check(self) -> HealthCheck:
        """Return the health check of all schedulers: one ticks, and nothing is overdue."""

        async def backlog() -> ScheduleBacklog:
            return await self._schedules.backlog(now=self._now)

        every = self._settings.precision
        return scheduler_check(self._broker.shared, backlog=backlog, every=every, clock=self._clock)

    async def schedulers(self) -> Sequence[SchedulerEntry]:
        """Return the schedulers of all processes as they last told: last tick, lag, backlog."""
        return await schedulers(self._broker.shared)

    @property
    def _running(self) -> Ticker:
        if self._kept is None:
            raise StoreRequired("A scheduler")
        return self._ticker


def _owner_of(name: str) -> str:
    """Return a name to claim under: several processes may go by one name, but claim apart."""
    return f"{name}/{new_message_id()[-8:]}"
