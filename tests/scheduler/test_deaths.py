"""What the death of schedulers leaves behind, step by step: each firing still is exactly one message."""

from __future__ import annotations

from datetime import timedelta

import pytest

from godwit.core.messages.message import Message
from godwit.core.schedule.schedules import FiringStatus
from godwit.runtime.scheduler.sender import envelope_of
from tests.scheduler.builders import HOUR, MINUTE, NOON, QUEUE
from tests.scheduler.memory_managers import MemoryManagers
from tests.store.conformance.harness import StoreHarness

WINDOW = timedelta(minutes=10)
"""The deduplication window of the queue."""


@pytest.fixture
def managers(harness: StoreHarness) -> MemoryManagers:
    return MemoryManagers(harness.url)


async def leave_behind(managers: MemoryManagers, *, published: int, claimed: int) -> None:
    """Let a scheduler claim firings due in two hours, publish some of them and die before it says so."""
    async with managers.open() as mq:
        assert mq.store is not None
        for number in range(claimed):
            await mq.schedule_message(Message(queue=QUEUE, payload=number), NOON + 2 * HOUR)
        managers.clock.advance(90 * MINUTE)
        firings = await mq.store.schedules.claim(
            now=managers.now, until=managers.now + HOUR, limit=100, owner="dead", lease=MINUTE
        )
        assert len(firings) == claimed
        envelopes = [envelope_of(one, now_ms=managers.clock.now_ms()) for one in firings]
        await managers.broker.publish(envelopes[:published])


async def test_what_a_dead_scheduler_had_claimed_is_sent_by_another(managers: MemoryManagers) -> None:
    await leave_behind(managers, published=0, claimed=3)
    async with managers.open() as mq:
        assert (await mq.scheduler.tick()).swept == 0  # its claim holds
        managers.clock.advance(MINUTE)
        assert (await mq.scheduler.tick()).swept == 3
        managers.clock.advance(HOUR)
        assert sorted(one.payload for one in await managers.delivered()) == [0, 1, 2]


async def test_inside_the_window_it_is_published_again_and_recognised(managers: MemoryManagers) -> None:
    await leave_behind(managers, published=2, claimed=3)
    async with managers.open() as mq:
        managers.clock.advance(MINUTE)
        assert (await mq.scheduler.tick()).swept == 3
        assert (await managers.broker.stats())[0].duplicates == 2
        managers.clock.advance(HOUR)
        assert sorted(one.payload for one in await managers.delivered()) == [0, 1, 2]


async def test_with_all_schedulers_down_for_two_windows_the_status_is_asked_before_publishing_again(
    managers: MemoryManagers,
) -> None:
    await leave_behind(managers, published=2, claimed=3)
    # The two that were published are delivered and done; their window passes twice before a scheduler comes back.
    managers.clock.advance(30 * MINUTE)
    assert sorted(one.payload for one in await managers.delivered()) == [0, 1]
    managers.clock.advance(2 * WINDOW)
    await managers.broker.maintain()  # the broker has forgotten their ids
    async with managers.open() as mq:
        assert (await mq.scheduler.tick()).swept == 3
        assert [one.payload for one in await managers.delivered()] == [2]
        assert (await managers.broker.stats())[0].duplicates == 0
        assert (await mq.scheduler.tick()).swept == 0


async def test_the_store_is_asked_first_and_the_journal_for_the_rest(managers: MemoryManagers) -> None:
    await leave_behind(managers, published=2, claimed=3)
    managers.clock.advance(30 * MINUTE + 2 * WINDOW)
    await managers.delivered()
    async with managers.open() as mq:
        asked: list[str] = []

        async def ask(ids: object) -> set[str]:
            asked.extend(ids)  # type: ignore[arg-type]
            return set(asked[:1])

        mq.scheduler._sender._accepted._ask = ask
        assert (await mq.scheduler.tick()).swept == 3
        assert len(asked) == 3
        assert len(await managers.delivered()) <= 1


async def test_a_cancelled_firing_whose_publisher_died_is_taken_back_by_the_sweep(managers: MemoryManagers) -> None:
    await leave_behind(managers, published=0, claimed=1)
    async with managers.open() as mq:
        assert mq.store is not None
        row = (await mq.store.schedules.claim_again(now=managers.now + MINUTE, limit=1, owner="late", lease=MINUTE))[0]
        assert await mq.scheduler.cancel(row.message_id) is False  # the broker did not have it yet
        await managers.broker.publish([envelope_of(row, now_ms=managers.clock.now_ms())])  # ... and now it has
        assert await managers.waiting() == 1
        managers.clock.advance(3 * MINUTE)
        assert (await mq.scheduler.tick()).cancelled == 1
        assert await managers.waiting() == 0
        found = await mq.scheduler.firing(row.message_id)
        assert found is not None
        assert found.status is FiringStatus.CANCELLED


async def test_a_publisher_that_finds_its_firing_cancelled_takes_it_back_itself(managers: MemoryManagers) -> None:
    async with managers.open() as mq, managers.open() as other:
        known = await mq.schedule_message(Message(queue=QUEUE), NOON + 2 * HOUR)
        managers.clock.advance(90 * MINUTE)
        publish = managers.broker.publish

        async def cancelled_meanwhile(envelopes, **options):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN003, ANN202
            await other.scheduler.cancel(known)
            return await publish(envelopes, **options)

        managers.broker.publish = cancelled_meanwhile  # type: ignore[method-assign]
        assert (await mq.scheduler.tick()).sent == 0
        assert await managers.waiting() == 0


async def test_the_same_tick_run_twice_sends_nothing_twice(managers: MemoryManagers) -> None:
    """Specification 002, "Scheduler Runs Twice": the second run finds nothing, and what it repeats is recognised."""
    async with managers.open() as mq, managers.open() as twin:
        for number in range(10):
            await mq.schedule_message(Message(queue=QUEUE, payload=number), NOON + 2 * HOUR)
        managers.clock.advance(90 * MINUTE)
        sent = [(await one.scheduler.tick()).sent for one in (mq, twin, mq)]
        assert sent == [10, 0, 0]
        managers.clock.advance(HOUR)
        assert sorted(one.payload for one in await managers.delivered()) == list(range(10))
