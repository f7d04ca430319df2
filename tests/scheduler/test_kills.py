"""Five scheduler processes, killed at random and at every named point, over a change of the clock.

What came is judged from a file that the test writes as it consumes, against times that another program computes.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import pytest

from godwit.brokers.contract import Ack
from godwit.core.clock import from_ms, to_ms
from godwit.core.errors import GodwitError
from godwit.core.messages.message import Message
from godwit.core.queues import QueueSpec
from godwit.manager import MessageQueueManager
from godwit.runtime.scheduler.health import schedulers
from tests.faults.child_processes import ChildProcesses
from tests.scheduler.scheduler_process import POINTS, FileClock, open_manager, work
from tests.store.conformance.harness import StoreHarness
from tests.waiting import eventually

ZONE = "Europe/Berlin"
BEGIN = datetime(2026, 10, 24, 23, 25, tzinfo=UTC)
HOURS = 4
"""Over the repeated hour, which begins at 01:00 UTC."""

CLERKS = 5
KILLS = int(os.environ.get("GODWIT_SCHEDULER_KILLS", "100"))
RULES = {"wild": "*/10 * * * *", "fixed": "30 2 * * *", "hourly": "0 * * * *", "second": "0 5,35 1-3 * * *"}
QUEUE = "mail"
ONES = 50
END = BEGIN + timedelta(hours=HOURS)


def expected() -> Counter[tuple[str, str]]:
    """Compute every firing by looking at each minute's wall clock, and count one-off messages as one each."""
    found: Counter[tuple[str, str]] = Counter()
    at = BEGIN + timedelta(minutes=1)
    while at <= END:
        wall = at.astimezone(ZoneInfo(ZONE))
        first_pass = not wall.fold
        if wall.minute % 10 == 0:
            found["wild", at.isoformat()] += 1
        if wall.minute == 0:
            found["hourly", at.isoformat()] += 1
        if (wall.hour, wall.minute) == (2, 30) and first_pass:
            found["fixed", at.isoformat()] += 1
        if wall.hour in (1, 2, 3) and wall.minute in (5, 35) and first_pass:
            found["second", at.isoformat()] += 1
        at += timedelta(minutes=1)
    for number in range(ONES):
        found[f"one-{number}", due(number).isoformat()] += 1
    return found


def due(number: int) -> datetime:
    return BEGIN + timedelta(minutes=65 + 3 * number)


def faults(random: Random) -> Iterator[str]:
    """Return where the next scheduler dies by itself: every point in turn, at a random passage; every third by hand."""
    for point in cycle((*POINTS, "")):
        yield f"{point}:{random.randint(1, 2)}" if point else ""


async def consume(mq: MessageQueueManager, record: Path, until: asyncio.Event) -> None:
    """Write down each message that comes, with its time, then ack it."""
    with record.open("a") as lines:
        while True:
            pulled = await mq.broker.pull(QUEUE, "default", worker="w", limit=100, lease=timedelta(days=1) / 2)
            for one in pulled:
                message = one.open()
                assert message.scheduling is not None
                assert message.scheduling.deliver_at is not None
                who = message.scheduling.schedule_id or message.payload
                lines.write(f"{who} {message.scheduling.deliver_at.isoformat()} {one.ready_at_ms}\n")
            lines.flush()
            await mq.broker.settle([Ack(one.ack_id) for one in pulled])
            if until.is_set() and not pulled:
                return
            await asyncio.sleep(0.02)


class Shift:
    """The five processes, started again whenever one is gone."""

    def __init__(self, children: ChildProcesses, folder: Path, url: str, random: Random) -> None:
        self._children, self._folder, self._url, self._random = children, folder, url, random
        self._faults = faults(random)
        self._clerks = [self._start() for _ in range(CLERKS)]
        self.kills = 0
        self.died: Counter[str] = Counter()

    def _start(self, fault: str | None = None) -> tuple[object, str]:
        fault = next(self._faults) if fault is None else fault
        name = f"clerk-{len(self._children.members)}"
        return self._children.start(work, self._folder, self._url, name, fault), fault

    def is_over(self) -> bool:
        """Say whether enough have died, and one at every point."""
        return self.kills >= KILLS and set(POINTS) <= set(self.died)

    def look(self, *, kill: bool) -> None:
        """Replace the dead; kill one of the living when asked to."""
        for place, (member, fault) in enumerate(self._clerks):
            if not member.is_alive():  # type: ignore[attr-defined]
                self.kills += 1
                self.died[fault.partition(":")[0]] += 1
                self._clerks[place] = self._start()
        if kill:
            place = self._random.randrange(CLERKS)
            self._children.kill(self._clerks[place][0])  # type: ignore[arg-type]
            self.kills += 1
            self._clerks[place] = self._start()


@pytest.mark.timeout(600)
async def test_kills_lose_and_double_nothing_over_a_change_of_the_clock(harness: StoreHarness, tmp_path: Path) -> None:
    clock = FileClock.make(tmp_path / "clock", to_ms(BEGIN))
    url = harness.url if harness.backend == "postgres" else f"sqlite:///{tmp_path / 'broker.db'}"
    random = Random(7)
    children = ChildProcesses()
    record = tmp_path / "record"
    record.touch()
    try:
        async with open_manager(tmp_path, url, "judge") as mq:
            await mq.broker.declare(QueueSpec(name=QUEUE, ttl=None))
            for name, cron in RULES.items():
                await mq.scheduler.add(Message(queue=QUEUE), cron=cron, timezone=ZONE, id=name, misfire="catch_up")
            for number in range(ONES):
                await mq.schedule_message(Message(queue=QUEUE, payload=f"one-{number}"), due(number))
            shift = Shift(children, tmp_path, url, random)
            over = asyncio.Event()
            consumer = asyncio.create_task(consume(mq, record, over))
            await play(mq, clock, shift, random)
            await eventually(lambda: settled(mq, shift), within=timedelta(seconds=120), what="an empty store")
            over.set()
            await consumer
    finally:
        children.kill_all()
    assert shift.is_over(), (shift.kills, shift.died)
    judge(record)


async def play(mq: MessageQueueManager, clock: FileClock, shift: Shift, random: Random) -> None:
    """Let time pass in steps, each after some scheduler has seen the one before, and kill on the way.

    It goes on beyond the end until enough of them have died, and one at every point.
    """
    step = timedelta(minutes=20)
    steps = (END + timedelta(hours=1) - BEGIN) // step
    for number in range(20 * steps + KILLS):
        if number >= steps and shift.is_over():
            return
        now_ms = clock.now_ms()

        async def seen(now_ms: int = now_ms) -> bool:
            shift.look(kill=False)
            return any(entry.last_tick_ms >= now_ms for entry in await schedulers(mq.broker.shared))

        await eventually(seen, within=timedelta(seconds=120), what=f"a tick at {from_ms(now_ms)}")
        for _ in range(-(-KILLS // steps)):
            if random.random() < 0.5:
                shift.look(kill=True)
        clock.set_ms(to_ms(BEGIN + (number + 1) * step))


async def settled(mq: MessageQueueManager, shift: Shift) -> bool:
    """Say whether nothing due before the end is left in the store, letting claims of the dead run out."""
    shift.look(kill=False)
    clock = mq._clock
    assert isinstance(clock, FileClock)
    clock.set_ms(clock.now_ms() + 1_000)
    try:
        schedules = mq.scheduler._schedules
        waiting = [one for one in await schedules.upcoming(limit=1_000) if one.fire_at <= END]
        unsure = await schedules.claim_again(
            now=mq.scheduler._now - timedelta(days=9), limit=1, owner="nobody", lease=timedelta(0)
        )
    except GodwitError:
        return False
    return not waiting and not unsure


def judge(record: Path) -> None:
    """Compare what came with what should have come: nothing missing, nothing twice, nothing early."""
    came: Counter[tuple[str, str]] = Counter()
    for line in record.read_text().splitlines():
        who, at, ready_ms = line.split()
        assert int(ready_ms) >= to_ms(datetime.fromisoformat(at))
        if datetime.fromisoformat(at) <= END:
            came[who, at] += 1
    wanted = expected()
    assert {"missed": wanted - came, "doubled": came - wanted} == {"missed": Counter(), "doubled": Counter()}
