"""Queues with very many messages: what time asks for is done in portions, and no call holds the event loop for long.

`./dev soak --large` does the same with a million messages of each kind.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.contract import Ack, Delivery
from godwit.brokers.memory import maintain as in_memory
from godwit.brokers.sqlite import maintain as in_sqlite
from godwit.core.names import QueueName
from godwit.core.queues import GroupSpec
from tests.brokers.large_queues import HELD_SECONDS, KINDS, calls_on_a_large_queue
from tests.conformance.harness import LEASE, LONG, G, Harness, Q, ids_of
from tests.waiting import soon

PORTIONS = {"memory": in_memory.PORTION, "sqlite": in_sqlite.PORTION}
MANY = {"memory": 100_000, "sqlite": 20_000}
REMOVED = {"memory": 3_000, "sqlite": 300}
PAST = LEASE + timedelta(milliseconds=1)


@pytest.fixture(params=PORTIONS)
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    harness = Harness(request.param, tmp_path)
    await harness.start()
    return harness


async def test_a_pull_makes_only_a_portion_of_what_is_due_ready(harness: Harness) -> None:
    portion = PORTIONS[harness.name]
    await harness.declare()
    await harness.publish(*(f"m{n}" for n in range(3 * portion)), due=LEASE)
    await harness.outage(PAST)
    assert len(await harness.pull(10, lease=LONG)) == 10
    assert (await harness.stats()).delayed == 2 * portion
    assert await harness.broker.maintain() == 2 * portion
    assert (await harness.stats()).delayed == 0
    await harness.stop()


async def test_a_pull_buries_only_a_portion_of_what_has_expired_and_delivers_none_of_the_rest(harness: Harness) -> None:
    portion = PORTIONS[harness.name]
    await harness.declare()
    await harness.publish(*(f"m{n}" for n in range(2 * portion + 1)), expires=LEASE)
    await harness.outage(PAST)
    await harness.publish("fresh")
    assert await harness.pull(10, lease=LONG) == []
    assert (await harness.stats()).dead == portion
    assert await harness.pull(10, lease=LONG) == []
    assert (await harness.stats()).dead == 2 * portion
    assert ids_of(await harness.pull(10, lease=LONG)) == ["fresh"]
    await harness.stop()


async def test_a_pull_that_waits_goes_on_portion_by_portion_while_the_loop_turns(tmp_path: Path) -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    for backend, portion in PORTIONS.items():
        place = tmp_path / backend
        place.mkdir()
        harness = Harness(backend, place, live=True)
        await harness.start()
        await harness.declare()
        await harness.publish(*(f"m{n}" for n in range(10 * portion)), expires=timedelta(milliseconds=-1))
        await harness.publish("fresh")
        turns, turning = 0, asyncio.create_task(turn())
        async with asyncio.timeout(10):
            assert ids_of(await harness.pull(10, wait=LONG, lease=LONG)) == ["fresh"]
        turning.cancel()
        assert turns > 5, turns
        await harness.stop()


async def test_a_pull_takes_only_a_portion_of_the_leases_back_that_ran_out(harness: Harness) -> None:
    portion = PORTIONS[harness.name]
    await harness.declare(GroupSpec(name=G, forgive_outages=False))
    await harness.publish(*(f"m{n}" for n in range(3 * portion)))
    assert len(await harness.pull(3 * portion)) == 3 * portion
    await harness.outage(PAST)
    assert len(await harness.pull(1, lease=LONG)) == 1
    assert (await harness.stats()).leased == 2 * portion + 1
    assert await harness.broker.maintain() == 2 * portion
    crashed = await harness.pull(3 * portion, lease=LONG)
    assert {delivery.crashes for delivery in crashed} == {1}
    assert len(crashed) == 3 * portion - 1
    await harness.stop()


async def test_an_outage_moves_every_lease_once_however_many_there_are(harness: Harness) -> None:
    many = 2 * PORTIONS[harness.name] + 2_000
    await harness.declare()
    await harness.publish(*(f"m{n}" for n in range(many)))
    held = await harness.pull(many)
    await harness.outage(2 * PAST)
    assert await harness.pull(1, lease=LONG) == []
    assert await harness.broker.maintain() <= many
    assert await harness.broker.maintain() == 0
    assert (await harness.events()).count("lease_moved") == many
    assert await harness.broker.settle([Ack(one.ack_id) for one in held]) == []
    await harness.stop()


async def test_any_number_of_leases_outlives_an_outage_and_lets_a_fresh_message_through(harness: Harness) -> None:
    await harness.declare()
    held: list[Delivery] = []
    for many in (65_535, 65_536, 100_000):
        while len(held) < many:
            at_once = min(10_000, many - len(held))
            await harness.publish(*(f"m{len(held) + n}" for n in range(at_once)))
            held += await harness.pull(at_once)
        await harness.restart()
        await harness.outage(2 * LEASE)
        await harness.publish(f"fresh-{many}", priority=100)
        assert ids_of(await soon(harness.pull(1, lease=LONG), 5)) == [f"fresh-{many}"]
        held_now = await harness.stats()
        assert held_now.leased == many + 1 + (many > 65_535) + (many > 65_536)
        await harness.broker.maintain()
    for start in range(0, len(held), 10_000):
        acks = [Ack(one.ack_id) for one in held[start : start + 10_000]]
        assert await harness.broker.settle(acks) == []
    await harness.stop()


async def test_however_many_queues_were_removed_maintenance_costs_the_same(harness: Harness) -> None:
    async def cost() -> float:
        """Return the processor time of the cheapest of a few rounds."""
        rounds = []
        for _ in range(5):
            began = time.process_time()
            await harness.broker.maintain()
            rounds.append(time.process_time() - began)
        return min(rounds)

    await harness.declare()
    before = await cost()
    for number in range(REMOVED[harness.name]):
        await harness.declare(queue=f"q{number}")
        await harness.broker.remove(QueueName(f"q{number}"))
    assert await cost() < 3 * before + 0.002
    await harness.stop()


async def test_journals_of_removed_queues_are_trimmed_in_turn_and_their_numbers_go_on(harness: Harness) -> None:
    for number in range(50):
        await harness.declare(queue=f"q{number}")
        await harness.broker.remove(QueueName(f"q{number}"))
    former = (await harness.broker.journal.shards())["q1#0"]
    assert former.bytes
    await harness.outage(timedelta(days=365))
    for _ in range(3):
        await harness.broker.maintain()
    assert not any(ends.bytes for ends in (await harness.broker.journal.shards()).values())
    await harness.declare(queue="q1")
    await harness.publish("a", queue="q1")
    assert (await harness.rows("q1"))[-1]["seq"] == former.last_seq + 3
    await harness.stop()


@pytest.mark.parametrize("kind", KINDS)
async def test_no_call_holds_the_event_loop_for_long(harness: Harness, kind: str) -> None:
    held = await calls_on_a_large_queue(harness, kind, MANY[harness.name])
    assert max(held.values()) < HELD_SECONDS, held
    assert Q in {stats.name for stats in await harness.broker.stats()}
    await harness.stop()
