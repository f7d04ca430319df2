"""Promise 7: lanes, first in first out, returned messages first, and one in flight per ordering key."""

from __future__ import annotations

import pytest

from godwit.brokers.contract import Ack, HandBack
from godwit.core.queues import GroupSpec
from tests.conformance.harness import LEASE, LONG, MOMENT, RETURNS_BY_PUBLISH_POSITION, G, Harness, Q, ids_of

pytestmark = pytest.mark.promise(7)

ORDERED = GroupSpec(name=G, message_ordering=True)


async def test_messages_come_in_the_order_they_were_published(harness: Harness) -> None:
    await harness.declare()
    ids = [f"m{n}" for n in range(30)]
    for name in ids:
        await harness.publish(name)
    assert [name for _ in range(10) for name in await harness.ids(3)] == ids


@pytest.mark.parametrize(("lower", "higher"), [(20, 21), (60, 61), (80, 81)])
async def test_a_higher_lane_comes_first(harness: Harness, lower: int, higher: int) -> None:
    await harness.declare()
    await harness.publish("low", priority=lower)
    await harness.publish("high", priority=higher)
    assert await harness.ids(1) == ["high"]
    assert await harness.ids(1) == ["low"]


@pytest.mark.parametrize(("one", "other"), [(0, 20), (21, 60), (61, 80), (81, 100)])
async def test_priorities_of_one_lane_are_first_in_first_out(harness: Harness, one: int, other: int) -> None:
    await harness.declare()
    await harness.publish("first", priority=one)
    await harness.publish("second", priority=other)
    assert await harness.ids() == ["first", "second"]


async def test_one_pull_goes_through_the_lanes_from_the_highest(harness: Harness) -> None:
    await harness.declare()
    for priority in (10, 50, 75, 95):
        await harness.publish(f"p{priority}", priority=priority)
    assert await harness.ids() == ["p95", "p75", "p50", "p10"]


async def test_every_tenth_pull_that_delivers_begins_with_the_lowest_lane(harness: Harness) -> None:
    await harness.declare()
    await harness.publish(*(f"low{n}" for n in range(5)), priority=0)
    await harness.publish(*(f"high{n}" for n in range(40)), priority=100)
    got = [(await harness.ids(1))[0][:3] for _ in range(30)]
    assert [index for index, lane in enumerate(got) if lane == "low"] == [9, 19, 29]


async def test_pulls_that_deliver_nothing_do_not_count_towards_the_tenth(harness: Harness) -> None:
    await harness.declare()
    for _ in range(25):
        assert await harness.pull() == []
    await harness.publish("low", priority=0)
    await harness.publish(*(f"high{n}" for n in range(20)), priority=100)
    got = [(await harness.ids(1))[0][:3] for _ in range(12)]
    assert got.index("low") == 9


async def test_a_queue_with_one_lane_ignores_priorities(harness: Harness) -> None:
    await harness.declare(lanes=1)
    await harness.publish("first", priority=0)
    await harness.publish("second", priority=100)
    assert await harness.ids() == ["first", "second"]


async def test_a_retried_message_comes_before_those_never_delivered(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", "b", "c")
    await harness.retry(await harness.pull_one())
    assert await harness.ids() == ["a", "b", "c"]


async def test_a_message_handed_back_comes_before_those_never_delivered(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", "b", "c")
    await harness.broker.settle([HandBack((await harness.pull_one()).ack_id)])
    assert await harness.ids() == ["a", "b", "c"]


async def test_a_message_whose_lease_ran_out_comes_before_those_never_delivered(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", "b", "c")
    await harness.pull_one()
    await harness.let_pass(LEASE + MOMENT)
    assert await harness.ids() == ["a", "b", "c"]


async def test_a_delayed_retry_comes_before_those_never_delivered_once_due(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", "b", "c")
    await harness.retry(await harness.pull_one(), LEASE)
    await harness.let_pass(LEASE + MOMENT)
    assert await harness.ids() == ["a", "b", "c"]


async def test_a_returned_message_of_a_lower_lane_does_not_overtake_a_higher_lane(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("low", priority=0)
    await harness.retry(await harness.pull_one())
    await harness.publish("high", priority=100)
    assert await harness.ids() == ["high", "low"]


async def test_returned_messages_go_to_their_publish_position(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", "b", "c", "d")
    one, two, three = await harness.pull(3)
    for delivery in (three, one, two):
        await harness.retry(delivery)
    got = await harness.ids()
    if harness.name in RETURNS_BY_PUBLISH_POSITION:
        assert got == ["a", "b", "c", "d"]
    else:
        assert (set(got[:3]), got[3:]) == ({"a", "b", "c"}, ["d"])


async def test_a_due_message_joins_the_end_of_its_lane(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("due", due=LEASE)
    await harness.publish("early")
    await harness.let_pass(LEASE + MOMENT)
    await harness.publish("late")
    assert await harness.ids() == ["early", "due", "late"]


async def test_one_message_per_key_is_in_flight(harness: Harness) -> None:
    await harness.declare(ORDERED)
    await harness.publish("a1", "a2", key="a")
    await harness.publish("b1", key="b")
    await harness.publish("plain")
    assert ids_of(await harness.pull(10, lease=LONG)) == ["a1", "b1", "plain"]
    assert await harness.pull(10) == []
    stats = await harness.stats()
    assert (stats.leased, stats.blocked, stats.ready) == (3, 1, 0)


async def test_an_ack_releases_the_next_of_the_key(harness: Harness) -> None:
    await harness.declare(ORDERED)
    await harness.publish("a1", "a2", "a3", key="a")
    assert [name for _ in range(3) for name in await harness.ids(5)] == ["a1", "a2", "a3"]


@pytest.mark.parametrize("way", ["retry", "delay", "hand back", "silence"])
async def test_the_order_of_a_key_holds_across_every_return(harness: Harness, way: str) -> None:
    await harness.declare(ORDERED)
    await harness.publish("a1", "a2", key="a")
    head = await harness.pull_one()
    match way:
        case "retry":
            await harness.retry(head)
        case "delay":
            await harness.retry(head, LEASE)
            assert await harness.pull(5) == []
        case "hand back":
            await harness.broker.settle([HandBack(head.ack_id)])
        case _:
            assert await harness.pull(5) == []
    await harness.let_pass(LEASE + MOMENT)
    assert [await harness.ids(5) for _ in range(2)] == [["a1"], ["a2"]]


async def test_a_delayed_head_blocks_its_key_and_no_other(harness: Harness) -> None:
    await harness.declare(ORDERED)
    await harness.publish("a1", key="a", due=LEASE)
    await harness.publish("a2", key="a")
    await harness.publish("b1", key="b")
    assert await harness.ids(5) == ["b1"]
    stats = await harness.stats()
    assert (stats.delayed, stats.blocked) == (1, 1)
    await harness.let_pass(LEASE + MOMENT)
    assert [name for _ in range(2) for name in await harness.ids(5)] == ["a1", "a2"]


async def test_a_head_that_is_dead_lettered_releases_its_key(harness: Harness) -> None:
    await harness.declare(ORDERED)
    await harness.publish("a1", "a2", key="a")
    await harness.give_up(await harness.pull_one())
    assert await harness.ids(5) == ["a2"]


async def test_a_head_that_expires_releases_its_key(harness: Harness) -> None:
    await harness.declare(ORDERED)
    await harness.publish("a1", key="a", expires=LEASE)
    await harness.publish("a2", key="a")
    await harness.let_pass(LEASE + MOMENT)
    assert await harness.ids(5) == ["a2"]


async def test_a_head_that_is_cancelled_releases_its_key(harness: Harness) -> None:
    await harness.declare(ORDERED)
    await harness.publish("a1", key="a", due=LONG)
    await harness.publish("a2", key="a")
    assert await harness.broker.cancel(Q, harness.envelope("a1").id)
    assert await harness.ids(5) == ["a2"]


async def test_a_blocked_message_that_is_cancelled_leaves_the_key_as_it_was(harness: Harness) -> None:
    await harness.declare(ORDERED)
    await harness.publish("a1", "a2", "a3", key="a")
    head = await harness.pull_one(lease=LONG)
    assert await harness.broker.cancel(Q, harness.envelope("a2").id)
    assert await harness.pull(5) == []
    await harness.broker.settle([Ack(head.ack_id)])
    assert await harness.ids(5) == ["a3"]


async def test_the_next_of_a_key_that_is_due_later_waits_for_its_time(harness: Harness) -> None:
    await harness.declare(ORDERED)
    await harness.publish("a1", key="a")
    await harness.publish("a2", key="a", due=LEASE)
    assert await harness.ids(5) == ["a1"]
    assert await harness.ids(5) == []
    await harness.let_pass(LEASE + MOMENT)
    assert await harness.ids(5) == ["a2"]


async def test_a_replayed_dead_letter_goes_to_the_end_of_its_key(harness: Harness) -> None:
    await harness.declare(ORDERED)
    await harness.publish("a1", "a2", "a3", key="a")
    await harness.give_up(await harness.pull_one())
    (letter,) = await harness.letters()
    assert await harness.broker.dead_letters.replay([letter.id]) == []
    assert [name for _ in range(3) for name in await harness.ids(5)] == ["a2", "a3", "a1"]


async def test_ordered_messages_ignore_lanes(harness: Harness) -> None:
    await harness.declare(ORDERED)
    await harness.publish("low", key="a", priority=0)
    await harness.publish("high", key="a", priority=100)
    await harness.publish("other", key="b", priority=100)
    assert await harness.ids(5) == ["low", "other"]
    assert await harness.ids(5) == ["high"]


async def test_without_message_ordering_keys_are_ignored(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a1", "a2", key="a")
    assert ids_of(await harness.pull(5)) == ["a1", "a2"]


async def test_a_key_is_free_again_after_its_last_message(harness: Harness) -> None:
    await harness.declare(ORDERED)
    await harness.publish("a1", key="a")
    assert await harness.ids() == ["a1"]
    await harness.publish("a2", key="a")
    assert await harness.ids() == ["a2"]


async def test_the_order_of_keys_survives_a_restart(harness: Harness) -> None:
    await harness.declare(ORDERED)
    await harness.publish("a1", "a2", key="a")
    head = await harness.pull_one(lease=LONG)
    await harness.restart()
    assert await harness.pull(5) == []
    await harness.broker.settle([Ack(head.ack_id)])
    assert await harness.ids(5) == ["a2"]


async def test_purging_leaves_a_leased_head_and_frees_its_key_when_it_ends(harness: Harness) -> None:
    await harness.declare(ORDERED)
    await harness.publish("a1", "a2", key="a")
    head = await harness.pull_one(lease=LONG)
    assert await harness.broker.purge(Q) == 1
    await harness.publish("a3", key="a")
    assert await harness.pull(5) == []
    await harness.broker.settle([Ack(head.ack_id)])
    assert await harness.ids(5) == ["a3"]
