"""Promise 10: inside the window an id is accepted once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.conformance.harness import LEASE, LONG, MOMENT, Harness, Q

pytestmark = pytest.mark.promise(10)


async def fresh(harness: Harness, *ids: str, **fields: object) -> list[bool]:
    return [receipt.fresh for receipt in await harness.publish(*ids, **fields)]


async def test_a_repeated_id_is_answered_and_not_stored_again(harness: Harness) -> None:
    await harness.declare()
    assert await fresh(harness, "a") == [True]
    assert await fresh(harness, "a", "b") == [False, True]
    assert await harness.ids() == ["a", "b"]


async def test_a_repeated_id_in_one_call_is_accepted_once(harness: Harness) -> None:
    await harness.declare()
    assert await fresh(harness, "a", "b", "a") == [True, True, False]
    assert await harness.ids() == ["a", "b"]


async def test_a_repeated_id_in_a_later_chunk_of_one_call_is_accepted_once(harness: Harness) -> None:
    await harness.declare()
    ids = ["a", *(f"m{n}" for n in range(250)), "a"]
    assert await fresh(harness, *ids) == [True] * 251 + [False]


async def test_an_id_is_remembered_after_its_message_is_done(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.ids()
    assert await fresh(harness, "a") == [False]
    assert await harness.ids() == []


async def test_an_id_is_remembered_across_a_restart(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.restart()
    assert await fresh(harness, "a") == [False]


async def test_an_id_is_fresh_again_after_the_window(harness: Harness) -> None:
    await harness.declare(dedup_window=LEASE)
    await harness.publish("a")
    await harness.let_pass(LEASE / 2)
    assert await fresh(harness, "a") == [False]
    await harness.let_pass(LEASE / 2 + MOMENT)
    assert await fresh(harness, "a") == [True]
    assert await harness.ids() == ["a", "a"]


async def test_a_repetition_does_not_lengthen_the_window(harness: Harness) -> None:
    await harness.declare(dedup_window=LEASE)
    await harness.publish("a")
    await harness.let_pass(LEASE * 3 / 4)
    await harness.publish("a")
    await harness.let_pass(LEASE / 2)
    assert await fresh(harness, "a") == [True]


async def test_the_window_counts_from_deliver_at_when_that_is_later(harness: Harness) -> None:
    await harness.declare(dedup_window=LEASE)
    await harness.publish("a", due=LEASE * 2)
    await harness.let_pass(LEASE * 2 + MOMENT)
    assert await fresh(harness, "a") == [False]
    await harness.let_pass(LEASE)
    assert await fresh(harness, "a") == [True]


async def test_a_window_of_zero_accepts_an_id_again_in_the_next_call(harness: Harness) -> None:
    await harness.declare(dedup_window=timedelta(0))
    assert await fresh(harness, "a") == [True]
    assert await fresh(harness, "a") == [True]


async def test_each_queue_remembers_its_own_ids(harness: Harness) -> None:
    await harness.declare()
    await harness.declare(queue="other")
    assert await fresh(harness, "a") == [True]
    assert await fresh(harness, "a", queue="other") == [True]


async def test_replaying_and_retrying_bypass_deduplication(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.retry(await harness.pull_one())
    await harness.give_up(await harness.pull_one())
    assert await harness.broker.dead_letters.replay([letter.id for letter in await harness.letters()]) == []
    assert await harness.ids() == ["a"]


async def test_purging_and_cancelling_do_not_forget_ids(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", "b")
    await harness.broker.cancel(Q, harness.envelope("a").id)
    await harness.broker.purge(Q)
    assert await fresh(harness, "a", "b") == [False, False]


async def test_removing_a_queue_forgets_its_ids(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.broker.remove(Q)
    await harness.declare()
    assert await fresh(harness, "a") == [True]


async def test_a_duplicate_is_counted_and_journaled_without_a_group(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.publish("a")
    stats = await harness.queue_stats()
    assert (stats.published, stats.duplicates) == (1, 1)
    last = (await harness.rows())[-1]
    assert (last["event"], last["message_id"], last["group"]) == ("duplicate", "a", None)


async def test_many_publishers_at_once_store_an_id_once(harness: Harness) -> None:
    await harness.declare()
    brokers = [harness.broker, await harness.another()]
    envelopes = [harness.envelope(f"m{n}", due=-LONG) for n in range(20)]
    answers = await asyncio.gather(*(brokers[n % 2].publish(envelopes) for n in range(10)))
    assert sum(receipt.fresh for receipts in answers for receipt in receipts) == 20
    assert len(await harness.ids()) == 20
