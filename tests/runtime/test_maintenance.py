"""Of all processes one looks after the broker, and another takes over when it is gone."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.contract import SharedEntry
from godwit.brokers.memory import MemoryBroker
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.clock import ManualClock
from godwit.core.queues import QueueSpec
from godwit.core.shared_keys import MAINTENANCE
from godwit.runtime.delivery.empty_polls import EmptyPollCache
from godwit.runtime.leader import CLAIM_FOR
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.maintenance import Maintenance
from godwit.runtime.worker.worker import Worker
from tests.waiting import eventually, soon

Q = "q"


class Counting(MemoryBroker):
    """Counts how often it was looked after."""

    rounds = 0

    async def maintain(self) -> int:
        """Count, and do it."""
        self.rounds += 1
        return await super().maintain()

    async def claim(self) -> SharedEntry | None:
        """Return who claims it."""
        return await self.shared.get(MAINTENANCE)


class Lonely(Counting):
    """Each process of it has to look after its own."""

    care_is_shared = False


async def test_one_of_several_looks_after_the_broker() -> None:
    async with Counting() as broker:
        crowd = [Maintenance(broker, f"worker {number}") for number in range(5)]
        for one in crowd * 3:
            await one.tick()
        assert broker.rounds == 3
        claim = await broker.claim()
        assert claim is not None
        assert claim.value == b"worker 0"


async def test_one_that_has_no_claim_asks_for_nothing_until_it_is_free() -> None:
    async with Counting() as broker:
        first, second = Maintenance(broker, "first"), Maintenance(broker, "second")
        await first.tick()
        second.learn(await broker.claim())
        waiting = asyncio.create_task(second.our_turn())
        await asyncio.sleep(0)
        assert not waiting.done()
        await first.release()
        second.learn(await broker.claim())
        await soon(waiting, 5)
        await second.tick()
        assert broker.rounds == 2


async def test_the_claim_of_a_dead_process_runs_out() -> None:
    clock = ManualClock(1_000)
    async with Counting(clock=clock) as broker:
        dead, heir = Maintenance(broker, "dead"), Maintenance(broker, "heir")
        await dead.tick()
        await heir.tick()
        assert broker.rounds == 1
        clock.advance(CLAIM_FOR)
        heir.learn(await broker.claim())
        await heir.tick()
        assert broker.rounds == 2
        dead.learn(await broker.claim())
        await dead.release()
        claim = await broker.claim()
        assert claim is not None, "one that comes back late takes nothing away"
        assert claim.value == b"heir"


async def test_brokers_whose_processes_hold_leases_of_their_own_are_looked_after_by_each() -> None:
    async with Lonely() as broker:
        for number in range(4):
            await Maintenance(broker, f"worker {number}").tick()
        assert broker.rounds == 4
        assert await broker.claim() is None


async def test_a_worker_that_stops_leaves_the_claim_to_another(tmp_path: Path) -> None:
    async with SqliteBroker(tmp_path / "q.db") as broker, SqliteBroker(tmp_path / "q.db") as other:
        await broker.declare(QueueSpec(name=Q))
        workers = [
            Worker(one, [Consumer(handler=_ignore, queues=(Q,))], name=f"w{n}") for n, one in enumerate((broker, other))
        ]
        running = [asyncio.create_task(worker.run()) for worker in workers]

        async def owner() -> bytes | None:
            claim = await broker.shared.get(MAINTENANCE)
            return None if claim is None else claim.value

        async def is_claimed() -> bool:
            return await owner() is not None

        await eventually(is_claimed)
        holder = await owner()
        shutdown = 0 if holder == b"w0" else 1
        workers[shutdown].stop()
        await running[shutdown]

        async def is_inherited() -> bool:
            return await owner() == f"w{1 - shutdown}".encode()

        await eventually(is_inherited)
        workers[1 - shutdown].stop()
        await running[1 - shutdown]
        assert await owner() is None


async def _ignore(_: object) -> None:
    return None


def test_a_place_counts_as_looked_at_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("godwit.runtime.delivery.empty_polls.time.monotonic", lambda: now)
    looks, within = EmptyPollCache(), timedelta(seconds=30)
    assert not looks.recent([(Q, "a")], within)
    looks.found_nothing((Q, "a"))
    assert looks.recent([(Q, "a")], within)
    assert not looks.recent([(Q, "a"), (Q, "b")], within)
    now = 130.0
    assert not looks.recent([(Q, "a")], within)


def test_of_those_whose_waiting_ends_together_one_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("godwit.runtime.delivery.empty_polls.time.monotonic", lambda: now)
    looks, within = EmptyPollCache(), timedelta(seconds=30)
    assert [looks.take_turn([(Q, "a")], within) for _ in range(10)] == [True] + [False] * 9
    now += 31
    assert [looks.take_turn([(Q, "a")], within) for _ in range(10)] == [True] + [False] * 9
