"""Promise 8: limits count per group; flow control caps what is leased."""

from __future__ import annotations

import pytest

from godwit.brokers.contract import Ack
from godwit.core.errors import QueueFull
from godwit.core.names import GroupName
from godwit.core.queues import FlowControl, GroupSpec, Overflow
from tests.conformance.harness import LEASE, LONG, G, Harness, ids_of

pytestmark = pytest.mark.promise(8)

SLOW = GroupName("slow")


async def test_a_publish_over_the_limit_is_refused_naming_the_group(harness: Harness) -> None:
    await harness.declare("fast", "slow", max_size=2)
    await harness.publish("a", "b")
    await harness.ids(group="fast")
    with pytest.raises(QueueFull) as caught:
        await harness.publish("c")
    assert (caught.value.queue, caught.value.group, caught.value.limit, caught.value.allowed) == (
        "orders",
        "slow",
        "max_size",
        2,
    )
    assert (await harness.stats(group="fast")).depth == 0


async def test_a_refused_publish_leaves_no_trace(harness: Harness) -> None:
    await harness.declare(max_size=1)
    before = await harness.events()
    with pytest.raises(QueueFull):
        await harness.publish("a", "b")
    assert await harness.events() == before
    assert (await harness.queue_stats()).published == 0
    assert [receipt.fresh for receipt in await harness.publish("a")] == [True]


async def test_exactly_the_limit_fits(harness: Harness) -> None:
    await harness.declare(max_size=3)
    await harness.publish("a", "b", "c")
    stats = await harness.stats()
    assert (stats.depth, stats.full) == (3, True)


async def test_leased_delayed_and_blocked_messages_count_toward_the_limit(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, message_ordering=True), max_size=3)
    await harness.publish("a1", "a2", key="a")
    await harness.publish("later", due=LONG)
    await harness.pull_one(lease=LONG)
    with pytest.raises(QueueFull):
        await harness.publish("b")


async def test_an_ack_makes_room(harness: Harness) -> None:
    await harness.declare(max_size=1)
    await harness.publish("a")
    await harness.ids()
    assert (await harness.stats()).full is False
    await harness.publish("b")


async def test_bytes_are_limited_too(harness: Harness) -> None:
    size = harness.envelope("a").size
    await harness.declare(max_bytes=size * 2)
    await harness.publish("a", "b")
    assert (await harness.stats()).bytes == size * 2
    with pytest.raises(QueueFull, match="max_bytes"):
        await harness.publish("c")


async def test_messages_due_later_are_limited_by_max_delayed(harness: Harness) -> None:
    await harness.declare(max_delayed=2)
    await harness.publish("a", "b", due=LONG)
    with pytest.raises(QueueFull, match="max_delayed"):
        await harness.publish("c", due=LONG)
    await harness.publish("now")


async def test_a_dropping_group_drops_what_does_not_fit_and_counts_it(harness: Harness) -> None:
    await harness.declare("fast", GroupSpec(name=SLOW, overflow=Overflow.DROP), max_size=3)
    await harness.publish("a", "b")
    await harness.ids(group="fast")
    receipts = await harness.publish("c", "d", "e")
    assert [receipt.fresh for receipt in receipts] == [True] * 3
    assert await harness.ids(group="fast") == ["c", "d", "e"]
    assert (await harness.stats(group="slow")).dropped == 2
    assert await harness.ids(group="slow") == ["a", "b", "c"]


async def test_a_dropped_copy_is_in_the_journal(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, overflow=Overflow.DROP), max_size=1)
    await harness.publish("a", "b")
    dropped = [row for row in await harness.rows() if row["event"] == "dropped"]
    assert [(row["message_id"], row["publish_seq"], row["group"]) for row in dropped] == [("b", 2, G)]
    assert set(await harness.projection()) == {("orders", G, 1)}


async def test_a_dropping_group_drops_one_by_one_so_that_a_smaller_message_may_fit(harness: Harness) -> None:
    small, big = harness.envelope("s"), harness.envelope("b", payload="x" * 500)
    await harness.declare(GroupSpec(name=G, overflow=Overflow.DROP), max_bytes=small.size * 2)
    await harness.broker.publish([small, big, harness.envelope("t")])
    assert await harness.ids() == ["s", "t"]


async def test_a_duplicate_does_not_count_toward_the_limit(harness: Harness) -> None:
    await harness.declare(max_size=1)
    await harness.publish("a")
    assert [receipt.fresh for receipt in await harness.publish("a")] == [False]


async def test_an_addressed_message_is_checked_against_its_own_group_only(harness: Harness) -> None:
    await harness.declare("fast", "slow", max_size=1)
    await harness.publish("a", group="slow")
    await harness.publish("b", group="fast")
    with pytest.raises(QueueFull, match="slow"):
        await harness.publish("c", group="slow")


async def test_declaring_again_can_raise_a_limit(harness: Harness) -> None:
    await harness.declare(max_size=1)
    await harness.publish("a")
    await harness.declare(max_size=2)
    await harness.publish("b")
    assert await harness.ids() == ["a", "b"]


async def test_flow_control_caps_the_messages_leased_over_all_workers(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, flow_control=FlowControl(max_messages=3)))
    await harness.publish(*(f"m{n}" for n in range(5)))
    held = await harness.pull(2, lease=LONG)
    assert len(await harness.pull(5, worker="worker-2", lease=LONG)) == 1
    assert await harness.pull(5) == []
    await harness.broker.settle([Ack(held[0].ack_id)])
    assert ids_of(await harness.pull(5)) == ["m3"]


async def test_flow_control_caps_the_bytes_leased(harness: Harness) -> None:
    size = harness.envelope("a").size
    await harness.declare(GroupSpec(name=G, flow_control=FlowControl(max_bytes=size * 2)))
    await harness.publish("a", "b", "c")
    assert ids_of(await harness.pull(5, lease=LONG)) == ["a", "b"]
    assert (await harness.stats()).leased_bytes == size * 2
    assert await harness.pull(5) == []


async def test_flow_control_is_exceeded_by_one_message_only_when_nothing_is_leased(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, flow_control=FlowControl(max_bytes=10)))
    await harness.publish("a", "b")
    (held,) = await harness.pull(5, lease=LONG)
    assert await harness.pull(5) == []
    await harness.broker.settle([Ack(held.ack_id)])
    assert ids_of(await harness.pull(5)) == ["b"]


async def test_a_pull_stays_within_its_own_bytes_but_the_first_always_fits(harness: Harness) -> None:
    size = harness.envelope("a").size
    await harness.declare()
    await harness.publish("a", "b", "c", "d")
    assert await harness.ids(max_bytes=size * 2) == ["a", "b"]
    assert await harness.ids(max_bytes=1) == ["c"]


async def test_a_pull_gives_no_more_than_its_limit(harness: Harness) -> None:
    await harness.declare()
    await harness.publish(*(f"m{n}" for n in range(5)))
    assert await harness.ids(3) == ["m0", "m1", "m2"]


async def test_flow_control_frees_what_a_lost_worker_held(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, flow_control=FlowControl(max_messages=1)))
    await harness.publish("a", "b")
    await harness.pull_one()
    await harness.let_pass(LEASE * 2)
    assert ids_of(await harness.pull(5)) == ["a"]
