"""Campaigns: loaded once, in bounded memory, whatever stops the load."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from godwit.core.errors import InvalidSchedule, ScheduleNotFound
from godwit.core.messages.message import Message
from godwit.core.schedule.schedules import ScheduleStatus
from godwit.runtime.scheduler import campaigns
from godwit.runtime.scheduler.campaigns import Row, rows_of_file
from tests.faults.child_processes import ChildProcesses
from tests.scheduler import loader_process
from tests.scheduler.builders import HOUR, MINUTE, NOON, QUEUE
from tests.scheduler.memory_managers import MemoryManagers
from tests.store.conformance.harness import StoreHarness

DUE = NOON + 2 * HOUR


@pytest.fixture
def managers(harness: StoreHarness) -> MemoryManagers:
    return MemoryManagers(harness.url)


def rows(count: int) -> Iterator[Row]:
    for number in range(count):
        yield f"user-{number}", DUE, Message(queue=QUEUE, type="birthday", payload=number)


async def test_a_campaign_is_delivered_once_each(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        loaded = await mq.scheduler.schedule_many("spring", rows(1_500))
        assert (loaded.read, loaded.added) == (1_500, 1_500)
        again = await mq.scheduler.schedule_many("spring", rows(1_600))
        assert (again.read, again.added) == (1_600, 100)
        managers.clock.advance(HOUR)
        assert (await mq.scheduler.tick()).sent == 1_600
        # What has fired is not scheduled again either.
        assert (await mq.scheduler.schedule_many("spring", rows(1_600))).added == 0
        managers.clock.advance(HOUR)
        found = await managers.delivered()
        assert sorted(one.payload for one in found) == list(range(1_600))
        assert {one.scheduling.campaign for one in found if one.scheduling} == {"spring"}
        assert {one.type for one in found} == {"birthday"}


async def test_rows_are_read_only_as_far_as_they_are_stored(
    managers: MemoryManagers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What bounds the memory: whatever the length of the campaign, three batches are under way at most."""
    size = 2_000
    monkeypatch.setattr(campaigns, "BATCH", size)
    read = 0
    ahead = []

    def counted() -> Iterator[Row]:
        nonlocal read
        for row in rows(3 * size):
            read += 1
            yield row

    async with managers.open() as mq:
        loaded = await mq.scheduler.schedule_many(
            "spring", counted(), progress=lambda done, _added: ahead.append(read - done)
        )
        assert loaded.added == 3 * size
    assert len(ahead) == 3
    assert max(ahead) <= 2 * size


async def test_loads_leave_the_turns_of_threads_as_they_were(managers: MemoryManagers) -> None:
    before = sys.getswitchinterval()
    async with managers.open() as mq:
        loads = (mq.scheduler.schedule_many(name, rows(500)) for name in ("spring", "summer", "autumn"))
        assert [one.added for one in await asyncio.gather(*loads)] == [500] * 3
        with pytest.raises(ZeroDivisionError):
            await mq.scheduler.schedule_many("winter", (row for row in rows(10) if 1 // (len(row[0]) - len("user-5"))))
    assert sys.getswitchinterval() == before


async def test_a_campaign_is_cancelled_by_one_call_also_what_the_broker_has(managers: MemoryManagers) -> None:
    async with managers.open() as mq:
        await mq.scheduler.schedule_many("spring", rows(300))
        late = ((f"late-{key}", DUE + HOUR, message) for key, _, message in rows(300))
        await mq.scheduler.schedule_many("spring", late)
        managers.clock.advance(90 * MINUTE)
        assert (await mq.scheduler.tick()).sent == 300
        assert await mq.scheduler.cancel_campaign("spring") == 600
        assert await managers.waiting() == 0
        state = await mq.scheduler.campaign("spring")
        assert (state.status, state.cancelled, state.waiting) == (ScheduleStatus.CANCELLED, 600, 0)
        assert await mq.scheduler.cancel_campaign("spring") == 0
        with pytest.raises(ScheduleNotFound):
            await mq.scheduler.campaign("other")


async def test_a_row_that_cannot_be_scheduled_is_named_and_the_load_can_go_on(managers: MemoryManagers) -> None:
    def wrong() -> Iterator[Row]:
        yield from rows(3)
        yield "user-3", NOON - MINUTE, Message(queue=QUEUE)

    async with managers.open() as mq:
        with pytest.raises(InvalidSchedule, match="in the past") as refused:
            await mq.scheduler.schedule_many("spring", wrong())
        expired = [("user-0", DUE, Message(queue=QUEUE, expires_at=DUE))]
        with pytest.raises(InvalidSchedule, match="expires_at is not after deliver_at"):
            await mq.scheduler.schedule_many("spring", expired)
        assert refused.value.__notes__ == ["It is row 3 of campaign 'spring'."]
        assert (await mq.scheduler.schedule_many("spring", rows(4))).added == 4


async def test_a_file_of_lines_is_a_campaign(managers: MemoryManagers, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    lines = [
        {"key": "a", "deliver_at": DUE.isoformat(), "payload": {"n": 1}},
        {
            "key": "b",
            "deliver_at": DUE.isoformat(),
            "type": "anniversary",
            "priority": 90,
            "attributes": {"lang": "no"},
        },
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    async with managers.open() as mq:
        template = Message(queue=QUEUE, type="birthday")
        assert (await mq.scheduler.schedule_many("spring", rows_of_file(file, template))).added == 2
        managers.clock.advance(2 * HOUR)
        await mq.scheduler.tick()
        b, a = await managers.delivered()
        assert (a.type, a.payload, b.type, b.priority) == ("birthday", {"n": 1}, "anniversary", 90)
        assert b.attributes == {"lang": "no"}


async def test_a_load_that_is_killed_is_completed_by_loading_again(harness: StoreHarness) -> None:
    count = 3 * loader_process.BATCH
    children = ChildProcesses()
    try:
        member = children.start(loader_process.work, harness.url, count, "scheduler.loading:2")
        member.join(200)
        assert member.exitcode == -9
    finally:
        children.kill_all()
    loaded = await loader_process.load(harness.url, count)
    # The batch that was being stored when it died is not there, the one before it is.
    assert (loaded.read, loaded.added) == (count, count - loader_process.BATCH)
    async with harness.open() as store:
        state = await store.schedules.campaign("spring")
        assert state is not None
        assert (state.planned, state.waiting) == (count, count)
