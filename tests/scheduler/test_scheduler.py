"""MessageScheduler over every store."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta

import pytest

from godwit.brokers.memory import MemoryBroker
from godwit.core.errors import AlreadyExistsError, InvalidSchedule, ScheduleNotFound, SchedulerRequired, StoreRequired
from godwit.core.messages.message import Kind, Message, Scheduling
from godwit.core.queues import QueueSpec
from godwit.core.schedule.schedules import FiringStatus, ScheduleStatus
from godwit.core.settings import SchedulerSettings, Settings
from godwit.manager import MessageQueueManager
from tests.scheduler.builders import HOUR, MINUTE, NOON, QUEUE
from tests.scheduler.memory_managers import MemoryManagers
from tests.store.conformance.harness import StoreHarness

DAY = timedelta(days=1)


@pytest.fixture
def managers(harness: StoreHarness) -> MemoryManagers:
    return MemoryManagers(harness.url)


def mail(payload: object = None) -> Message:
    return Message(queue=QUEUE, type="mail", payload=payload)


# One message, once


async def test_a_message_due_within_an_hour_waits_in_the_broker_a_later_one_in_the_store(
    managers: MemoryManagers,
) -> None:
    async with managers.open() as mq:
        soon = await mq.schedule_message(mail("soon"), NOON + HOUR)
        late = await mq.schedule_message(mail("late"), NOON + 2 * HOUR)
        assert await managers.waiting() == 1
        assert await mq.scheduler.firing(soon) is None
        firing = await mq.scheduler.firing(late)
        assert firing is not None
        assert (firing.status, firing.deliver_at) == (FiringStatus.CREATED, NOON + 2 * HOUR)


async def test_a_scheduled_message_is_delivered_at_its_time_and_not_before(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        known = await mq.schedule_message(mail("late"), NOON + 2 * HOUR)
        assert (await mq.scheduler.tick()).sent == 0
        managers.clock.advance(HOUR)
        assert (await mq.scheduler.tick()).sent == 1
        assert (await mq.scheduler.tick()).sent == 0
        managers.clock.advance(HOUR - timedelta(milliseconds=1))
        assert await managers.delivered() == []
        managers.clock.advance(timedelta(milliseconds=1))
        (message,) = await managers.delivered()
        assert (message.id, message.kind, message.payload) == (known, Kind.SCHEDULED, "late")
        assert message.scheduling == Scheduling(deliver_at=NOON + 2 * HOUR)
        firing = await mq.scheduler.firing(known)
        assert firing is not None
        assert firing.status is FiringStatus.PUBLISHED


async def test_scheduling_a_message_twice_delivers_it_once(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        message = mail()
        for _ in range(2):
            await mq.schedule_message(message, NOON + 2 * HOUR)
        managers.clock.advance(2 * HOUR)
        await mq.scheduler.tick()
        await mq.schedule_message(message, managers.now + 2 * HOUR)
        managers.clock.advance(3 * HOUR)
        await mq.scheduler.tick()
        assert len(await managers.delivered()) == 1


async def test_a_scheduled_message_can_be_moved_paused_resumed_and_cancelled(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        scheduler = mq.scheduler
        moved, paused, gone = [await mq.schedule_message(mail(name), NOON + 2 * HOUR) for name in ("m", "p", "g")]
        await scheduler.reschedule(moved, NOON + 5 * HOUR)
        await scheduler.pause(paused)
        assert await scheduler.cancel(gone)
        managers.clock.advance(3 * HOUR)
        assert (await scheduler.tick()).sent == 0
        await scheduler.resume(paused)
        assert (await scheduler.tick()).sent == 1
        assert [one.payload for one in await managers.delivered()] == ["p"]
        managers.clock.advance(2 * HOUR)
        await scheduler.tick()
        assert [one.payload for one in await managers.delivered()] == ["m"]
        for call in (
            scheduler.cancel("nobody"),
            scheduler.pause("nobody"),
            scheduler.reschedule(gone, managers.now + DAY),
        ):
            with pytest.raises(ScheduleNotFound):
                await call
        assert not await scheduler.cancel(moved)


async def test_a_message_already_with_the_broker_is_cancelled_there(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        known = await mq.schedule_message(mail(), NOON + 2 * HOUR)
        managers.clock.advance(90 * MINUTE)
        await mq.scheduler.tick()
        assert await managers.waiting() == 1
        assert await mq.scheduler.cancel(known)
        assert await managers.waiting() == 0
        firing = await mq.scheduler.firing(known)
        assert firing is not None
        assert firing.status is FiringStatus.CANCELLED


@pytest.mark.parametrize(
    ("deliver_at", "reason"),
    [
        (datetime(2027, 1, 1), "without a time zone"),
        (NOON - MINUTE, "in the past"),
        (NOON + 366 * DAY, "SCHEDULER_MAX_FUTURE_DAYS"),
    ],
)
async def test_times_that_cannot_be_kept_are_refused(
    managers: MemoryManagers, deliver_at: datetime, reason: str
) -> None:
    async with managers.open() as mq:
        with pytest.raises(InvalidSchedule, match=reason):
            await mq.schedule_message(mail(), deliver_at)
        assert await mq.scheduler.upcoming() == []


async def test_how_far_ahead_is_allowed_is_configured(managers: MemoryManagers) -> None:
    async with managers.open(SchedulerSettings(max_future=timedelta(days=2))) as mq:
        await mq.schedule_message(mail(), NOON + 2 * DAY)
        with pytest.raises(InvalidSchedule, match="more than 2 days ahead"):
            await mq.schedule_message(mail(), NOON + 2 * DAY + MINUTE)


async def test_what_cannot_be_published_cannot_be_scheduled(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        mq.schemas.register("mail", {"type": "object"})
        with pytest.raises(Exception, match="payload"):
            await mq.schedule_message(mail("no object"), NOON + 2 * HOUR)
        with pytest.raises(InvalidSchedule, match="kind is immediate"):
            await mq.schedule_message(Message(queue=QUEUE, kind=Kind.IMMEDIATE), NOON + 2 * HOUR)
        with pytest.raises(InvalidSchedule, match="expires_at is not after deliver_at"):
            await mq.schedule_message(Message(queue=QUEUE, expires_at=NOON + HOUR), NOON + 2 * HOUR)
        with pytest.raises(InvalidSchedule, match="deliver_at is not set"):
            await mq.schedule_message(mail({}))


async def test_without_a_store_the_broker_holds_what_is_scheduled_and_the_rest_is_refused() -> None:
    managers = MemoryManagers("unused://")
    mq = MessageQueueManager(
        MemoryBroker(clock=managers.clock), settings=Settings(broker_url="memory://"), clock=managers.clock
    )

    @mq.consumer(QUEUE)
    async def handle(_message: Message) -> None: ...

    async with mq:
        await mq.schedule_message(mail(), NOON + 90 * DAY)
        (stats,) = await mq.broker.stats()
        assert stats.groups[0].delayed == 1
        for call in (mq.schedule_message(mail(), cron="@daily"), mq.scheduler.tick(), mq.scheduler.cancel("x")):
            with pytest.raises(StoreRequired, match="GODWIT_STORE_URL"):
                await call
        with pytest.raises(SchedulerRequired):
            await mq.enqueue(Message(queue=QUEUE, scheduling=Scheduling(cron="@daily")))


# What recurs


async def test_a_recurring_message_is_a_message_of_its_own_each_time(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        known = await mq.schedule_message(mail("hello"), cron="0 * * * *", timezone="Europe/Berlin", id="hourly")
        assert known == "hourly"
        await mq.scheduler.tick()
        for _ in range(3):
            managers.clock.advance(HOUR)
            await mq.scheduler.tick()
        found = await managers.delivered()
        assert [one.scheduling.deliver_at for one in found if one.scheduling] == [
            NOON + hour * HOUR for hour in (1, 2, 3)
        ]
        assert len({one.id for one in found}) == 3
        assert {one.kind for one in found} == {Kind.RECURRING}
        assert {one.scheduling.schedule_id for one in found if one.scheduling} == {"hourly"}
        assert {one.metadata.correlation_id for one in found} == {one.id for one in found}
        assert {one.payload for one in found} == {"hello"}
        schedule = await mq.scheduler.get("hourly")
        assert (schedule.occurrences, schedule.last_fire_at) == (4, NOON + 4 * HOUR)


async def test_a_message_may_bring_its_own_rule(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        own = Scheduling(cron="30 9 * * *", timezone="Asia/Tokyo", max_occurrences=2)
        known = await mq.schedule_message(Message(queue=QUEUE, kind=Kind.RECURRING, scheduling=own))
        schedule = await mq.scheduler.get(known)
        assert (schedule.rule.cron, schedule.rule.timezone, schedule.rule.max_occurrences) == (
            "30 9 * * *",
            "Asia/Tokyo",
            2,
        )
        assert schedule.next_fire_at == datetime.fromisoformat("2026-06-02T00:30:00+00:00")


async def test_a_schedule_that_fires_before_the_next_tick_is_sent_at_once(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        await mq.schedule_message(mail(), cron="*/10 * * * * *", max_occurrences=5)
        assert await managers.waiting() == 5
        assert (await mq.scheduler.list())[0].status is ScheduleStatus.DONE


async def test_start_end_and_occurrences_bound_a_schedule(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        await mq.scheduler.add(
            mail("window"), cron="*/30 * * * *", starts_at=NOON + HOUR, ends_at=NOON + 2 * HOUR + MINUTE
        )
        await mq.scheduler.add(mail("thrice"), cron="*/30 * * * *", max_occurrences=3)
        for _ in range(10):
            await mq.scheduler.tick()
            managers.clock.advance(30 * MINUTE)
        found = Counter(one.payload for one in await managers.delivered())
        assert found == {"window": 3, "thrice": 3}
        assert {one.status for one in await mq.scheduler.list()} == {ScheduleStatus.DONE}


async def test_jitter_delays_each_firing_within_its_window(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        await mq.scheduler.add(mail(), cron="0 * * * *", jitter=10 * MINUTE, max_occurrences=3, id="spread")
        for _ in range(5):
            await mq.scheduler.tick()
            managers.clock.advance(HOUR)
        found = [one.scheduling.deliver_at for one in await managers.delivered() if one.scheduling]
        late = [at - NOON - (number + 1) * HOUR for number, at in enumerate(filter(None, found))]
        assert all(timedelta(0) <= one < 10 * MINUTE for one in late)
        assert len(set(late)) == 3


@pytest.mark.parametrize(("misfire", "count"), [("skip", 0), ("fire_once", 1), ("catch_up", 5)])
async def test_what_was_missed_while_no_scheduler_ran(managers: MemoryManagers, misfire: str, count: int) -> None:
    async with managers.open(SchedulerSettings(look_ahead=MINUTE)) as mq:
        await mq.scheduler.add(mail(), cron="0 * * * *", misfire=misfire, id="s")
        managers.clock.advance(5 * HOUR + 30 * MINUTE)
        await mq.scheduler.tick()
        assert len(await managers.delivered()) == count
        schedule = await mq.scheduler.get("s")
        assert (schedule.skipped, schedule.next_fire_at) == (5 - count, NOON + 6 * HOUR)
        analytics = await mq.scheduler.analytics("s")
        assert (analytics.lateness.fired, analytics.skipped) == (count, 5 - count)


async def test_pausing_takes_back_what_was_to_come_and_resuming_makes_up_for_nothing(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        await mq.scheduler.add(mail(), cron="*/10 * * * *", id="s")
        await mq.scheduler.tick()
        assert await managers.waiting() == 6
        await mq.scheduler.pause("s")
        await mq.scheduler.pause("s")
        assert await managers.waiting() == 0
        managers.clock.advance(2 * HOUR)
        await mq.scheduler.tick()
        assert await managers.delivered() == []
        await mq.scheduler.resume("s")
        await mq.scheduler.tick()
        managers.clock.advance(HOUR)
        assert len(await managers.delivered()) == 6
        assert (await mq.scheduler.get("s")).occurrences == 6


async def test_what_is_paused_and_resumed_at_once_fires_as_if_nothing_had_been(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        await mq.scheduler.add(mail(), cron="*/10 * * * *", id="s")
        await mq.scheduler.tick()
        await mq.scheduler.pause("s")
        await mq.scheduler.resume("s")
        await mq.scheduler.tick()
        assert await managers.waiting() == 6
        managers.clock.advance(HOUR)
        assert len(await managers.delivered()) == 6


async def test_a_change_also_reaches_firings_that_the_broker_already_has(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        await mq.scheduler.add(mail("old"), cron="*/20 * * * *", id="s", max_occurrences=6)
        await mq.scheduler.tick()
        managers.clock.advance(20 * MINUTE)
        changed = await mq.scheduler.update("s", message=mail("new"), timezone="Asia/Kolkata")
        assert (changed.version, changed.rule.timezone) == (2, "Asia/Kolkata")
        for _ in range(4):
            await mq.scheduler.tick()
            managers.clock.advance(HOUR)
        assert [one.payload for one in await managers.delivered()] == ["old", *["new"] * 5]


async def test_a_change_that_cannot_be_kept_changes_nothing(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        await mq.scheduler.add(mail(), cron="@daily", id="s")
        for change in (
            {"cron": "0 0 31 2 *"},
            {"timezone": "Mars/Olympus"},
            {"misfire": "perhaps"},
            {"max_occurrences": 0},
        ):
            with pytest.raises(InvalidSchedule):
                await mq.scheduler.update("s", **change)
        with pytest.raises(InvalidSchedule, match=r"names \['colour'\]"):
            await mq.scheduler.update("s", colour="red")
        assert (await mq.scheduler.get("s")).version == 1


async def test_a_cancelled_schedule_is_over_for_good(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        await mq.scheduler.add(mail(), cron="*/10 * * * *", id="s")
        await mq.scheduler.tick()
        assert await mq.scheduler.cancel("s")
        assert not await mq.scheduler.cancel("s")
        assert await managers.waiting() == 0
        for call in (mq.scheduler.resume("s"), mq.scheduler.pause("s"), mq.scheduler.update("s", cron="@daily")):
            with pytest.raises(InvalidSchedule, match="fires no more"):
                await call
        with pytest.raises(AlreadyExistsError):
            await mq.scheduler.add(mail(), cron="@daily", id="s")


async def test_previews_show_the_times_of_a_schedule(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        await mq.scheduler.add(mail(), cron="30 2 * * *", timezone="Europe/Berlin", id="s", max_occurrences=3)
        found = await mq.scheduler.preview("s", 10)
        assert [one.isoformat() for one in found] == [f"2026-06-0{day}T00:30:00+00:00" for day in (2, 3, 4)]
        await mq.scheduler.pause("s")
        assert await mq.scheduler.preview("s") == []


async def test_a_recurring_message_cannot_expire_and_impossible_rules_are_refused(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        with pytest.raises(InvalidSchedule, match="expires_at"):
            await mq.schedule_message(Message(queue=QUEUE, expires_at=NOON + DAY), cron="@daily")
        with pytest.raises(InvalidSchedule, match="no 31 February"):
            await mq.schedule_message(mail(), cron="0 0 31 2 *")
        with pytest.raises(InvalidSchedule, match="beside cron"):
            await mq.schedule_message(mail(), NOON + DAY, cron="@daily")
        assert await mq.scheduler.list() == []


# Many schedulers


async def test_many_schedulers_send_each_firing_once(managers: MemoryManagers) -> None:
    together = [managers.manager() for _ in range(5)]
    async with managers.open() as mq:
        for number in range(20):
            await mq.scheduler.add(mail(number), cron=f"{number} * * * *")
        for number in range(100):
            await mq.schedule_message(mail(100 + number), NOON + 2 * HOUR + number * MINUTE)
        for _ in range(8):
            await asyncio.gather(*(one.scheduler.tick() for one in together))
            managers.clock.advance(30 * MINUTE)
        counts = Counter(one.payload for one in await managers.delivered())
        assert {number: counts[number] for number in range(20)} == dict.fromkeys(range(20), 4) | {0: 4}
        assert {count for payload, count in counts.items() if payload >= 100} == {1}
        assert sum(payload >= 100 for payload in counts) == 100
        stats = (await managers.broker.stats())[0]
        assert stats.duplicates == 0  # claims alone keep them apart; the broker had nothing to recognise
    for one in together:
        assert one.store is not None
        await one.store.close()


async def test_a_missing_queue_holds_up_nothing_and_its_firings_come_when_it_is_there(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        known = await mq.schedule_message(Message(queue="missing"), NOON + 2 * HOUR)
        await mq.schedule_message(mail("fine"), NOON + 2 * HOUR)
        managers.clock.advance(2 * HOUR)
        assert (await mq.scheduler.tick()).sent == 1
        firing = await mq.scheduler.firing(known)
        assert firing is not None
        assert firing.status is FiringStatus.REFUSED
        assert "is not declared" in str(firing.error)
        await managers.broker.declare(QueueSpec(name="missing"))
        managers.clock.advance(2 * MINUTE)
        await mq.scheduler.tick()
        assert (await mq.scheduler.tick()).sent == 1
        firing = await mq.scheduler.firing(known)
        assert firing is not None
        assert firing.status is FiringStatus.PUBLISHED
