"""A plan makes a campaign exactly what it says, however often it is applied."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from godwit.core.errors import InvalidSchedule, StagingLost
from godwit.core.names import QueueName
from godwit.core.schedule.schedules import campaign_id
from godwit.store.contract import Store
from godwit.store.plans import Applied, CampaignPlan
from godwit.store.postgres.schedule import plans as postgres_plans
from godwit.store.sqlite.schedule import plans as sqlite_plans
from tests.faults.child_processes import ChildProcesses
from tests.store.conformance import adder
from tests.store.conformance.adder import Planned, part
from tests.store.conformance.harness import StoreHarness

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
LEASE = timedelta(minutes=1)


def planned(key: str, at: datetime = NOW + DAY, message: bytes = b"{}") -> Planned:
    return Planned(campaign_id("birthdays", key), key, at, message)


async def apply(store: Store, rows: Sequence[Planned], run_id: str = "0000000000001-a", *, extra: int = 0) -> Applied:
    half = len(rows) // 2
    staged = sum([await store.plans.stage(run_id, [part(some)]) for some in (rows[:half], rows[half:])])
    plan = CampaignPlan(
        run_id=run_id,
        campaign="birthdays",
        queue=QueueName("birthdays"),
        start=NOW,
        end=NOW + 7 * DAY,
        messages=staged + extra,
    )
    return await store.plans.apply(plan, now=NOW)


async def waiting(store: Store) -> dict[str | None, datetime]:
    return {firing.key: firing.deliver_at for firing in await store.schedules.upcoming(limit=1_000)}


async def test_a_plan_applied_twice_adds_nothing(store: Store) -> None:
    rows = [planned(f"u{number}") for number in range(50)]
    assert await apply(store, rows) == Applied(added=50, moved=0, cancelled=0)
    assert await apply(store, rows, "0000000000002-b") == Applied(added=0, moved=0, cancelled=0)
    assert await waiting(store) == {one.key: one.deliver_at for one in rows}


async def test_who_moved_is_moved_and_who_left_is_cancelled(store: Store) -> None:
    await apply(store, [planned("stays"), planned("moves"), planned("leaves"), planned("talks")])
    later = NOW + 2 * DAY
    changed = [planned("stays"), planned("moves", later), planned("comes"), planned("talks", message=b'{"n":1}')]
    assert await apply(store, changed, "0000000000002-b") == Applied(added=1, moved=2, cancelled=1)
    assert await waiting(store) == {
        "stays": NOW + DAY,
        "moves": later,
        "comes": NOW + DAY,
        "talks": NOW + DAY,
    }


async def test_however_many_leave_all_of_them_are_cancelled_and_nobody_else(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_plans, "CANCEL_AT_ONCE", 7)
    monkeypatch.setattr(sqlite_plans, "AT_ONCE", 7)
    rows = [planned(f"u{number}", NOW + DAY * (1 + number % 3)) for number in range(90)]
    await apply(store, rows)
    due = NOW + 2 * DAY  # a third of them
    claimed = await store.schedules.claim(now=NOW, until=due, limit=30, owner="s", lease=LEASE)
    await store.schedules.confirm([one.id for one in claimed], owner="s", now=NOW)
    stays = rows[::2]
    left = [one for one in rows if one not in stays]
    assert await apply(store, stays, "0000000000002-b") == Applied(added=0, moved=0, cancelled=len(left))
    sent = {one.id for one in claimed}
    assert set(await waiting(store)) == {one.key for one in stays if one.id not in sent}
    recalled = await store.schedules.cancelling(now=NOW + DAY, limit=1_000)
    assert {one.id for one in recalled} == {one.id for one in left if one.id in sent}


async def test_what_lies_outside_the_horizon_stays(store: Store) -> None:
    await apply(store, [planned("in"), planned("after", NOW + 8 * DAY)])
    assert await apply(store, [], "0000000000002-b") == Applied(added=0, moved=0, cancelled=1)
    assert await waiting(store) == {"after": NOW + 8 * DAY}


async def test_what_is_on_its_way_is_not_moved_and_is_taken_back_when_it_is_not_planned(store: Store) -> None:
    rows = [planned("claimed"), planned("sent"), planned("gone")]
    await apply(store, rows)
    claimed = await store.schedules.claim(now=NOW, until=NOW + 2 * DAY, limit=10, owner="s", lease=LEASE)
    done = {one.key: one.id for one in claimed}
    await store.schedules.confirm([done["sent"], done["gone"]], owner="s", now=NOW)
    moved = [planned("claimed", NOW + 3 * DAY), planned("sent", NOW + 3 * DAY)]
    assert await apply(store, moved, "0000000000002-b") == Applied(added=0, moved=0, cancelled=1)
    recalled = await store.schedules.cancelling([done["gone"]], now=NOW + DAY)
    assert [one.id for one in recalled] == [done["gone"]]
    found = await store.schedules.find(done["claimed"])
    assert found is not None
    assert found.deliver_at == NOW + DAY


async def test_what_fired_before_does_not_come_again_and_what_was_cancelled_may(store: Store) -> None:
    await apply(store, [planned("sent"), planned("cancelled")])
    claimed = await store.schedules.claim(now=NOW, until=NOW + 2 * DAY, limit=10, owner="s", lease=LEASE)
    sent = next(one.id for one in claimed if one.key == "sent")
    other = next(one.id for one in claimed if one.key == "cancelled")
    await store.schedules.confirm([sent], owner="s", now=NOW)
    await store.schedules.release([other], owner="s")
    assert (await apply(store, [planned("sent")], "0000000000002-b")).cancelled == 1
    again = await apply(store, [planned("sent"), planned("cancelled")], "0000000000003-c")
    assert again == Applied(added=1, moved=0, cancelled=0)


async def test_a_plan_that_is_not_staged_as_a_whole_changes_nothing(store: Store) -> None:
    await apply(store, [planned("there")])
    with pytest.raises(StagingLost):
        await apply(store, [planned("new")], "0000000000002-b", extra=1)
    assert set(await waiting(store)) == {"there"}


async def test_a_cancelled_campaign_takes_no_plan(store: Store) -> None:
    await apply(store, [planned("there")])
    await store.schedules.cancel_campaign("birthdays", now=NOW, limit=100)
    with pytest.raises(InvalidSchedule):
        await apply(store, [planned("new")], "0000000000002-b")


async def test_what_was_staged_is_forgotten_once_applied(store: Store) -> None:
    await apply(store, [planned("there")])
    with pytest.raises(StagingLost):
        await store.plans.apply(
            CampaignPlan(
                run_id="0000000000001-a",
                campaign="birthdays",
                queue=QueueName("birthdays"),
                start=NOW,
                end=NOW + DAY,
                messages=1,
            ),
            now=NOW,
        )


async def test_a_part_that_is_staged_again_counts_once(store: Store) -> None:
    rows = [planned(f"u{number}") for number in range(10)]
    await store.plans.stage("0000000000001-a", [part(rows[5:])])
    assert await apply(store, rows) == Applied(added=10, moved=0, cancelled=0)


async def test_the_first_plan_is_added_at_once_and_later_ones_are_not(store: Store) -> None:
    rows = [planned(f"ü{number}", NOW + DAY + timedelta(microseconds=number * 1_000)) for number in range(50)]
    async with store.plans.alone(adder.CAMPAIGN) as fresh:
        assert fresh
        assert await adder.add(store, rows) == 50
    assert await waiting(store) == {one.key: one.deliver_at for one in rows}
    found = await store.schedules.find(rows[7].id)
    assert found is not None
    assert (found.message, found.message_id, found.queue) == (b"{}", str(rows[7].id), "birthdays")
    async with store.plans.alone(adder.CAMPAIGN) as fresh:
        assert not fresh
    assert await apply(store, rows, "0000000000002-b") == Applied(added=0, moved=0, cancelled=0)
    state = await store.schedules.campaign(adder.CAMPAIGN)
    assert state is not None
    assert (state.planned, state.waiting) == (50, 50)


async def test_a_campaign_whose_messages_are_all_over_has_had_some(store: Store) -> None:
    await apply(store, [planned("sent")])
    (claimed,) = await store.schedules.claim(now=NOW, until=NOW + 2 * DAY, limit=10, owner="s", lease=LEASE)
    await store.schedules.confirm([claimed.id], owner="s", now=NOW)
    async with store.plans.alone(adder.CAMPAIGN) as fresh:
        assert not fresh


async def test_a_part_that_is_added_again_counts_once(store: Store) -> None:
    rows = [planned(f"u{number}") for number in range(30)]
    async with store.plans.alone(adder.CAMPAIGN) as fresh:
        assert fresh
        assert await adder.add(store, rows[15:]) == 15
        assert await adder.add(store, rows) == 30
    assert await waiting(store) == {one.key: one.deliver_at for one in rows}
    state = await store.schedules.campaign(adder.CAMPAIGN)
    assert state is not None
    assert state.planned == 30


async def test_a_campaign_that_is_cancelled_meanwhile_takes_no_more(store: Store) -> None:
    async with store.plans.alone(adder.CAMPAIGN):
        await adder.add(store, [planned("there")])
        await store.schedules.cancel_campaign(adder.CAMPAIGN, now=NOW, limit=100)
        with pytest.raises(InvalidSchedule):
            await adder.add(store, [planned("new")])
    assert await waiting(store) == {}
    with pytest.raises(InvalidSchedule):
        async with store.plans.alone(adder.CAMPAIGN):
            pass


async def test_the_plan_after_one_that_was_killed_makes_the_campaign_whole(harness: StoreHarness, store: Store) -> None:
    rows = [planned(f"u{number}") for number in range(3 * adder.STEP)]
    children = ChildProcesses()
    try:
        member = children.start(adder.work, harness.url, rows, "plan.adding:2")
        member.join(200)
        assert member.exitcode == -9
    finally:
        children.kill_all()
    # The step that was being stored when it died is not there, the one before it is.
    assert len(await waiting(store)) == adder.STEP
    changed = [*rows[1:], planned("new")]
    left = adder.STEP - 1
    assert await apply(store, changed) == Applied(added=len(changed) - left, moved=0, cancelled=1)
    assert await waiting(store) == {one.key: one.deliver_at for one in changed}
