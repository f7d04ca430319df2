"""The port of schedules, on every store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from godwit.core.clock import to_ms
from godwit.core.errors import InvalidSchedule
from godwit.core.schedule.schedules import Firing, FiringStatus, Misfire, Rule, Schedule, ScheduleStatus, single_id
from godwit.store.contract import Store
from godwit.store.schedules import Loading, ScheduleAdvance, Schedules
from tests.scheduler.builders import HOUR, LEASE, MINUTE, NOON, firing, firing_of, rule
from tests.store.conformance.harness import StoreHarness
from tests.store.tables import rows

_replace = msgspec.structs.replace


async def load(
    schedules: Schedules,
    campaign: str,
    firings: Sequence[Firing],
    *,
    size: int = 50,
    report: Callable[[int, int], None] = lambda *_: None,
) -> int:
    return await schedules.load(campaign, map(loading, firings), size=size, report=report)


def loading(one: Firing) -> Loading:
    return str(one.id), str(one.key), one.queue, one.deliver_at, one.message


async def claim(schedules: Schedules, owner: str = "a", *, until: datetime = NOON, limit: int = 100) -> list[Firing]:
    return await schedules.claim(now=NOON, until=until, limit=limit, owner=owner, lease=LEASE)


async def test_a_rule_comes_back_as_it_was_stored(store: Store) -> None:
    whole = rule(
        rule=Rule(
            cron="15 30 2 * * MON-FRI",
            timezone="Australia/Lord_Howe",
            starts_at=NOON,
            ends_at=NOON + 9 * HOUR,
            max_occurrences=7,
            jitter=timedelta(seconds=90),
            misfire=Misfire.CATCH_UP,
        ),
        occurrences=2,
        skipped=3,
        last_fire_at=NOON - HOUR,
    )
    assert await store.schedules.add(whole)
    assert await store.schedules.get("daily") == whole
    assert await store.schedules.get("other") is None


async def test_an_id_is_taken_once(store: Store) -> None:
    assert await store.schedules.add(rule())
    assert not await store.schedules.add(rule(queue="other"))
    stored = await store.schedules.get("daily")
    assert stored is not None
    assert stored.queue == "mail"


async def test_rules_are_listed_by_id_queue_and_status(store: Store) -> None:
    for name in "cab":
        await store.schedules.add(rule(name))
    await store.schedules.add(rule("d", queue="other", status=ScheduleStatus.PAUSED))
    page = store.schedules.page
    assert [one.id for one in await page()] == ["a", "b", "c", "d"]
    assert [one.id for one in await page(after="a", limit=2)] == ["b", "c"]
    assert [one.id for one in await page(status=ScheduleStatus.PAUSED)] == ["d"]
    assert [one.id for one in await page(queue="mail", limit=1)] == ["a"]


def advance(schedule: Schedule, *, by: timedelta = HOUR) -> ScheduleAdvance:
    assert schedule.next_fire_at is not None
    after = _replace(
        schedule,
        next_fire_at=schedule.next_fire_at + by,
        last_fire_at=schedule.next_fire_at,
        occurrences=schedule.occurrences + 1,
    )
    return ScheduleAdvance(schedule=after, firings=(firing_of(schedule, to_ms(schedule.next_fire_at)),))


async def test_a_due_rule_is_advanced_together_with_its_firings(store: Store) -> None:
    await store.schedules.add(rule("due"))
    await store.schedules.add(rule("later", next_fire_at=NOON + HOUR))
    await store.schedules.add(rule("paused", status=ScheduleStatus.PAUSED))
    assert await store.schedules.plan(until=NOON, limit=10, decide=advance) == 1
    assert await store.schedules.plan(until=NOON, limit=10, decide=advance) == 0
    due = await store.schedules.get("due")
    assert due is not None
    assert (due.next_fire_at, due.last_fire_at, due.occurrences) == (NOON + HOUR, NOON, 1)
    (planned,) = await store.schedules.upcoming(schedule_id="due")
    assert (planned.fire_at, planned.status) == (NOON, FiringStatus.CREATED)


async def test_what_decides_and_fails_changes_nothing(store: Store) -> None:
    await store.schedules.add(rule())

    def fail(_schedule: Schedule) -> ScheduleAdvance:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.schedules.plan(until=NOON, limit=10, decide=fail)
    assert await store.schedules.get("daily") == rule()
    assert await store.schedules.plan(until=NOON, limit=10, decide=advance) == 1


async def test_five_planners_advance_each_rule_once(harness: StoreHarness) -> None:
    stores = [harness.open() for _ in range(5)]
    try:
        for number in range(40):
            await stores[0].schedules.add(rule(f"r{number:02}"))

        async def work(store: Store) -> int:
            return sum([await store.schedules.plan(until=NOON, limit=3, decide=advance) for _ in range(20)])

        assert sum(await asyncio.gather(*map(work, stores))) == 40
        assert len(await stores[0].schedules.upcoming(limit=1_000)) == 40
    finally:
        for store in stores:
            await store.close()


async def test_a_firing_is_stored_once_also_after_it_fired(store: Store) -> None:
    schedules = store.schedules
    assert await schedules.put([firing("a"), firing("b")]) == 2
    assert await schedules.put([firing("a"), firing("b"), firing("c")]) == 1
    (first, *_) = claimed = await claim(schedules)
    assert await schedules.confirm([one.id for one in claimed], owner="a", now=NOON) == {one.id for one in claimed}
    assert await schedules.put([firing("a"), firing("d")]) == 1
    found = await schedules.find(first.id)
    assert found is not None
    assert (found.status, found.published_at, found.message) == (FiringStatus.PUBLISHED, NOON, b"")


async def test_claims_come_by_time_and_only_what_is_due(store: Store) -> None:
    await store.schedules.put([firing(str(minute), NOON + minute * MINUTE) for minute in (5, 1, 3, 61)])
    claimed = await claim(store.schedules, until=NOON + HOUR)
    assert [one.key for one in claimed] == ["1", "3", "5"]
    assert {one.status for one in claimed} == {FiringStatus.QUEUED}
    assert {one.queued_at for one in claimed} == {NOON}
    assert claimed[0] == _replace(
        firing("1", NOON + MINUTE), status=FiringStatus.QUEUED, queued_at=NOON, tries=1, message=claimed[0].message
    )
    assert await claim(store.schedules, "b", until=NOON + HOUR) == []


async def test_many_claimers_get_each_firing_once(harness: StoreHarness) -> None:
    stores = [harness.open() for _ in range(5)]
    try:
        await stores[0].schedules.put([firing(str(number)) for number in range(500)])

        async def work(number: int) -> list[UUID]:
            found = []
            while claimed := await claim(stores[number].schedules, f"s{number}", limit=20):
                found += [one.id for one in claimed]
            return found

        counts = Counter(one for found in await asyncio.gather(*map(work, range(5))) for one in found)
        assert len(counts) == 500
        assert set(counts.values()) == {1}
    finally:
        for store in stores:
            await store.close()


async def test_a_claim_that_ran_out_may_be_claimed_again(store: Store) -> None:
    schedules = store.schedules
    await schedules.put([firing("a")])
    await claim(schedules, "dead")
    early = NOON + LEASE - MINUTE / 60
    assert await schedules.claim_again(now=early, limit=9, owner="b", lease=LEASE) == []
    (again,) = await schedules.claim_again(now=NOON + LEASE, limit=9, owner="b", lease=LEASE)
    assert (again.queued_at, again.tries) == (NOON, 2)  # the first claim's time: what it published is that old
    # The one it was taken from comes too late.
    assert await schedules.confirm([again.id], owner="dead", now=NOON) == set()
    assert await schedules.confirm([again.id], owner="b", now=NOON) == {again.id}


async def test_released_firings_are_claimed_at_once_or_at_their_next_try(store: Store) -> None:
    schedules = store.schedules
    await schedules.put([firing("a"), firing("b")])
    a, b = (one.id for one in await claim(schedules))
    await schedules.release([a], owner="a")
    await schedules.release([b], owner="a", error="the queue is missing", again_at=NOON + MINUTE)
    assert [one.id for one in await claim(schedules)] == [a]
    refused = await schedules.find(b)
    assert refused is not None
    assert (refused.status, refused.error, refused.queued_at) == (FiringStatus.REFUSED, "the queue is missing", None)
    assert await schedules.wake(now=NOON, limit=9) == 0
    assert await schedules.wake(now=NOON + MINUTE, limit=9) == 1
    assert [one.id for one in await claim(schedules)] == [b]


async def test_a_firing_can_be_moved_paused_and_resumed_while_nobody_has_it(store: Store) -> None:
    schedules = store.schedules
    await schedules.put([firing("a")])
    (known,) = [one.id for one in await schedules.upcoming()]
    assert await schedules.move(known, NOON + HOUR)
    assert await claim(schedules) == []
    assert await schedules.hold(known, paused=True)
    assert not await schedules.hold(known, paused=True)
    assert await claim(schedules, until=NOON + HOUR) == []
    assert await schedules.hold(known, paused=False)
    (claimed,) = await claim(schedules, until=NOON + HOUR)
    assert claimed.deliver_at == NOON + HOUR
    assert not await schedules.move(known, NOON)
    assert not await schedules.hold(known, paused=True)


async def test_cancelling_asks_the_broker_only_where_it_may_have_the_message(store: Store) -> None:
    schedules = store.schedules
    late = NOON + HOUR
    await schedules.put([firing(key, late) for key in "abc"])
    await claim(schedules, until=late, limit=1)
    published = (await claim(schedules, "b", until=late, limit=1))[0].id
    await schedules.confirm([published], owner="b", now=NOON)
    ids = [firing(key).id for key in "abc"]
    voided = await schedules.void([*ids, single_id("unknown")], now=NOON)
    assert voided.count == 3
    assert len(voided.sent) == 2
    assert published in {one.id for one in voided.sent}
    # Its publisher finds out when it confirms, and gets to know which were cancelled.
    assert await schedules.confirm(ids, owner="a", now=NOON) == set()
    assert {one.id for one in await schedules.cancelling(ids, now=NOON)} == {one.id for one in voided.sent}
    # A sweeper waits until the publisher's claim has run out; what was published can be taken back at once.
    assert [one.id for one in await schedules.cancelling(now=NOON)] == [published]
    assert len(await schedules.cancelling(now=NOON + LEASE)) == 2
    await schedules.cancelled([one.id for one in voided.sent], now=NOON)
    assert await schedules.cancelling(now=NOON + LEASE) == []
    assert {found.status for one in ids if (found := await schedules.find(one))} == {FiringStatus.CANCELLED}
    # Cancelled is not fired: it may be scheduled again.
    assert await schedules.put([firing("a", late)]) == 1


async def test_what_was_published_and_is_due_is_not_cancelled(store: Store) -> None:
    await store.schedules.put([firing("a")])
    (claimed,) = await claim(store.schedules)
    await store.schedules.confirm([claimed.id], owner="a", now=NOON)
    assert (await store.schedules.void([claimed.id], now=NOON)).count == 0


async def test_a_change_voids_the_firings_to_come_and_wins_once(store: Store) -> None:
    schedules = store.schedules
    await schedules.add(rule(occurrences=4))
    first = rule()
    await schedules.put([firing_of(first, to_ms(NOON + hour * HOUR)) for hour in (0, 1, 2, 3)])
    await claim(schedules, until=NOON + HOUR, limit=2)
    await schedules.confirm([firing_of(first, to_ms(NOON + HOUR)).id], owner="a", now=NOON)
    changed = rule(version=2, occurrences=4, status=ScheduleStatus.PAUSED)
    voided = await schedules.change(changed, now=NOON)
    assert voided is not None
    assert voided.count == 3
    assert [one.message_id for one in voided.sent] == [firing_of(first, to_ms(NOON + HOUR)).message_id]
    stored = await schedules.get("daily")
    assert stored is not None
    assert (stored.version, stored.status, stored.occurrences) == (2, ScheduleStatus.PAUSED, 1)
    assert await schedules.change(changed, now=NOON) is None


async def test_a_campaign_is_loaded_once_however_often_it_is_loaded(store: Store) -> None:
    schedules = store.schedules
    reports: list[tuple[int, int]] = []
    firings = [firing(str(number)) for number in range(150)]
    assert await load(schedules, "spring", firings, report=lambda *report: reports.append(report)) == 150
    assert reports == [(50, 50), (100, 100), (150, 150)]
    claimed = await claim(schedules, limit=60)
    await schedules.confirm([one.id for one in claimed], owner="a", now=NOON)
    assert await load(schedules, "spring", [*firings, firing("new")]) == 1
    state = await schedules.campaign("spring")
    assert state is not None
    assert (state.planned, state.cancelled, state.waiting) == (151, 0, 91)


async def test_a_key_that_comes_twice_in_a_new_campaign_is_one_message(store: Store) -> None:
    schedules = store.schedules
    elsewhere = NOON.astimezone(ZoneInfo("Asia/Kathmandu"))
    firings = [*map(firing, "abbü"), firing("ü", NOON - HOUR), firing("a"), firing("c", elsewhere)]
    assert await load(schedules, "spring", firings, size=5) == 4
    state = await schedules.campaign("spring")
    assert state is not None
    assert (state.planned, state.waiting) == (4, 4)
    claimed = await claim(schedules)
    assert {(one.key, one.deliver_at, one.message_id, one.message) for one in claimed} == {
        (one.key, one.deliver_at, one.message_id, one.message) for one in map(firing, "abcü")
    }


async def test_a_campaign_that_two_load_at_once_is_loaded_once(harness: StoreHarness) -> None:
    async with harness.open() as one, harness.open() as other:
        firings = [firing(str(number)) for number in range(100)]
        added = await asyncio.gather(
            load(one.schedules, "spring", firings, size=20), load(other.schedules, "spring", firings[::-1], size=20)
        )
        assert sum(added) == 100
        state = await one.schedules.campaign("spring")
        assert state is not None
        assert (state.planned, state.waiting) == (100, 100)


async def test_a_campaign_that_is_cancelled_while_it_is_loaded_takes_no_more(store: Store) -> None:
    schedules = store.schedules

    loop = asyncio.get_running_loop()

    def some() -> Iterator[Loading]:
        yield loading(firing("a", NOON + HOUR))
        yield loading(firing("b", NOON + HOUR))
        # Here the first of them is stored, the second perhaps not yet.
        cancelling = schedules.cancel_campaign("spring", now=NOON, limit=10)
        assert asyncio.run_coroutine_threadsafe(cancelling, loop).result().count >= 1
        yield loading(firing("c", NOON + HOUR))

    with pytest.raises(InvalidSchedule, match="'spring' was cancelled"):
        await schedules.load("spring", some(), size=1, report=lambda *_: None)
    state = await schedules.campaign("spring")
    assert state is not None
    assert (state.planned, state.waiting) == (state.cancelled, 0)


async def test_a_load_that_nobody_waits_for_ends(store: Store) -> None:
    schedules = store.schedules
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def endless() -> Iterator[Loading]:
        for number in count():
            loop.call_soon_threadsafe(begun.set)
            yield loading(firing(str(number)))

    task = asyncio.create_task(schedules.load("spring", endless(), size=10, report=lambda *_: None))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    state = await schedules.campaign("spring")
    assert state is None or state.planned == state.waiting


async def test_a_campaign_is_cancelled_as_a_whole_and_takes_no_more(store: Store) -> None:
    schedules = store.schedules
    late = NOON + HOUR
    await load(schedules, "spring", [firing(str(number), late) for number in range(100)])
    await load(schedules, "autumn", [firing("1", late, campaign="autumn")])
    claimed = [one for one in await claim(schedules, until=late, limit=10) if one.campaign == "spring"]
    await schedules.confirm([one.id for one in claimed[:4]], owner="a", now=NOON)
    sent = 0
    while (voided := await schedules.cancel_campaign("spring", now=NOON, limit=30)).count:
        sent += len(voided.sent)
        await schedules.cancelled([one.id for one in voided.sent], now=NOON)
    assert sent == len(claimed)
    state = await schedules.campaign("spring")
    assert state is not None
    assert (state.status, state.cancelled, state.waiting) == (ScheduleStatus.CANCELLED, 100, 0)
    assert await schedules.campaign("nothing") is None
    with pytest.raises(InvalidSchedule, match="'spring' was cancelled"):
        await load(schedules, "spring", [firing("more")])
    autumn = await schedules.campaign("autumn")
    assert autumn is not None
    assert autumn.waiting == 1


async def test_the_backlog_is_what_is_overdue(store: Store) -> None:
    schedules = store.schedules
    empty = await schedules.backlog(now=NOON)
    assert (empty.count, empty.oldest) == (0, None)
    await schedules.add(rule(next_fire_at=NOON - HOUR))
    await schedules.put([firing("a", NOON - MINUTE), firing("b", NOON + MINUTE)])
    found = await schedules.backlog(now=NOON)
    assert (found.count, found.oldest) == (2, NOON - HOUR)


async def test_planned_and_actual_times_are_compared(store: Store) -> None:
    schedules = store.schedules
    nothing = await schedules.lateness()
    assert (nothing.fired, nothing.p50_ms) == (0, None)
    await schedules.put([firing(str(number), NOON - number * MINUTE) for number in range(10)])
    claimed = await claim(schedules)
    await schedules.confirm([one.id for one in claimed], owner="a", now=NOON)
    await schedules.put([firing("x", NOON + HOUR)])
    await schedules.void([firing("x").id], now=NOON)
    found = await schedules.lateness(campaign="spring")
    assert (found.fired, found.cancelled, found.late) == (10, 1, 9)
    assert (found.p50_ms, found.p95_ms, found.p99_ms, found.max_ms) == (240_000, 540_000, 540_000, 540_000)
    assert (await schedules.lateness(campaign="autumn")).fired == 0
    assert (await schedules.lateness(schedule_id="daily")).fired == 0
    assert (await schedules.lateness(since=NOON + HOUR)).fired == 0


async def test_what_ended_long_ago_is_forgotten(store: Store) -> None:
    schedules = store.schedules
    await schedules.add(rule("old", status=ScheduleStatus.DONE))
    await schedules.add(rule("active"))
    await schedules.put([firing("a")])
    (claimed,) = await claim(schedules)
    await schedules.confirm([claimed.id], owner="a", now=NOON)
    assert await schedules.prune(before=NOON - HOUR) == 0
    assert await schedules.find(claimed.id) is not None
    far = NOON + timedelta(days=4_000)
    assert await schedules.prune(before=far) == 1
    assert [one.id for one in await schedules.page()] == ["active"]
    assert await schedules.find(claimed.id) is None


@pytest.mark.parametrize("by", ["scheduler", "recorder"])
async def test_firings_that_are_over_are_kept_for_their_time_and_leave_by_whole_days(
    harness: StoreHarness, by: str
) -> None:
    """Both the scheduler's clean-up and the recorder's retention see to it, whichever of them runs."""
    old, young = datetime.now(UTC) - timedelta(days=9), datetime.now(UTC) - timedelta(days=2)
    async with harness.open() as store:
        schedules = store.schedules
        for key, over in (("old", old), ("young", young)):
            await schedules.put([firing(key, over)])
            (claimed,) = await schedules.claim(now=over, until=over, limit=1, owner="a", lease=LEASE)
            assert await schedules.confirm([claimed.id], owner="a", now=over) == {claimed.id}
        keep = timedelta(days=5)
        if by == "scheduler":
            await schedules.prune(before=datetime.now(UTC) - keep)
        else:
            await store.messages.retain(keep)
        assert await schedules.find(firing("old").id) is None
        assert await schedules.find(firing("young").id) is not None
    assert [row["key"] for row in await rows(harness.url, "SELECT key FROM schedule_firings_history")] == ["young"]
    if harness.backend == "postgres":
        days = await rows(
            harness.url,
            "SELECT inhrelid::regclass::text AS day FROM pg_inherits "
            "WHERE inhparent = 'schedule_firings_history'::regclass",
        )
        assert not [row for row in days if f"{old:%Y_%m_%d}" in row["day"] or f"{old:%Y%m%d}" in row["day"]]
