"""What holds in place of the promises that a backend keeps in part; gaps.py says which test stands for which."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from godwit.brokers.contract import Ack, Delivery, HandBack
from godwit.core.errors import InvalidSetting, QueueFull
from godwit.core.failures.failure import FailureKind
from godwit.core.queues import FlowControl, GroupSpec
from tests.conformance.gaps import GAPS
from tests.conformance.harness import LEASE, LONG, MOMENT, G, Harness, Q, ids_of
from tests.conformance.test_port_journal import ends, some_life
from tests.waiting import eventually

pytestmark = pytest.mark.parametrize(
    "harness", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in GAPS], indirect=True
)
ORDERED: Final = GroupSpec(name=G, message_ordering=True)


async def every_id(harness: Harness, count: int) -> list[str]:
    """Pull and ack until so many messages came."""
    came: list[str] = []

    async def enough() -> bool:
        came.extend(await harness.ids())
        return len(came) >= count

    await eventually(enough, what=f"{count} messages")
    return came


async def test_message_ordering_is_refused_and_nothing_is_declared(harness: Harness) -> None:
    with pytest.raises(InvalidSetting, match=r"redis:// or sqlite:// for ordered keys"):
        await harness.declare(ORDERED, "mail")
    assert await harness.broker.stats() == []
    await harness.declare()
    await harness.publish("a1", "a2", key="a")
    assert await every_id(harness, 2) == ["a1", "a2"]


async def test_every_priority_comes_once_in_publish_order(harness: Harness) -> None:
    await harness.declare()
    ids = [f"p{priority}" for priority in (0, 100, 20, 21, 60, 61, 80, 81, 50)]
    for name in ids:
        await harness.publish(name, priority=int(name[1:]))
    assert await every_id(harness, len(ids)) == ids


async def silent(harness: Harness, delivery: Delivery) -> None:
    await harness.let_pass(LEASE * 2)


async def handed_back(harness: Harness, delivery: Delivery) -> None:
    assert await harness.broker.settle([HandBack(delivery.ack_id)]) == []


async def retried(harness: Harness, delivery: Delivery) -> None:
    await harness.retry(delivery)


async def delayed(harness: Harness, delivery: Delivery) -> None:
    await harness.retry(delivery, LEASE)
    await harness.let_pass(LEASE + MOMENT)


@pytest.mark.parametrize("give_back", [retried, handed_back, silent, delayed])
async def test_a_returned_message_comes_again_behind_what_waits(
    harness: Harness, give_back: Callable[[Harness, Delivery], Awaitable[None]]
) -> None:
    await harness.declare()
    await harness.publish("a", "b", "c")
    await give_back(harness, await harness.pull_one())
    came = await every_id(harness, 3)
    assert sorted(came) == ["a", "b", "c"]
    assert came.index("b") < came.index("c")


async def test_what_a_closed_client_held_is_delivered_again(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.pull_one(lease=LONG)
    await harness.restart()
    assert await every_id(harness, 1) == ["a"]


async def test_a_lease_is_settled_by_its_own_client_only(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one(lease=LONG)
    other = await harness.another()
    assert await other.settle([Ack(delivery.ack_id)]) == [delivery.ack_id]
    assert (await harness.stats()).leased == 1
    assert await harness.broker.settle([Ack(delivery.ack_id)]) == []
    assert (await harness.stats()).depth == 0


async def test_what_is_due_together_comes_in_any_order(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.publish("b", due=LEASE * 2)
    await harness.retry(await harness.pull_one(), LEASE * 2)
    await harness.restart()
    assert (await harness.stats()).delayed == 2
    assert sorted(await every_id(harness, 2)) == ["a", "b"]


async def test_leased_and_delayed_messages_count_toward_the_limit(harness: Harness) -> None:
    await harness.declare(max_size=3)
    await harness.publish("a", "b")
    await harness.publish("later", due=LONG)
    await harness.pull_one(lease=LONG)
    with pytest.raises(QueueFull):
        await harness.publish("c")


async def test_what_a_lost_worker_held_is_freed_in_any_order(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, flow_control=FlowControl(max_messages=1)))
    await harness.publish("a", "b")
    await harness.pull_one()
    await harness.let_pass(LEASE * 2)
    assert sorted(await every_id(harness, 2)) == ["a", "b"]


async def test_what_has_expired_is_given_up_when_it_would_be_delivered(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("first")
    await harness.publish("past", expires=-LEASE)
    await harness.publish("late", due=LEASE * 2, expires=LEASE)
    await harness.publish("last")
    await harness.let_pass(LEASE * 2 + MOMENT)
    assert await every_id(harness, 2) == ["first", "last"]

    async def given_up() -> bool:
        assert await harness.ids() == []
        await harness.broker.maintain()
        return sorted(ids_of(await harness.letters())) == ["late", "past"]

    await eventually(given_up, what="both expired messages among the dead letters")
    assert {letter.kind for letter in await harness.letters()} == {FailureKind.EXPIRED}


async def test_stats_of_a_group_without_order_count_every_place(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("held", "dead", "ready")
    await harness.publish("later", due=LONG)
    for delivery in await harness.pull(2, lease=LONG):
        if delivery.message_id == "dead":
            await harness.give_up(delivery)

    async def counted() -> bool:
        stats = await harness.stats()
        return (stats.ready, stats.delayed, stats.leased, stats.dead) == (1, 1, 1, 1)

    await eventually(counted, what="one message in each place")


async def test_rows_of_arrivals_are_of_the_one_lane_there_is(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a", key="k", priority=90)
    rows = [row for row in await harness.rows() if row["event"] == "enqueued"]
    assert [(row["group"], row["copy"], row["copies"], row["lane"]) for row in rows] == [
        ("billing", 0, 2, 0),
        ("mail", 1, 2, 0),
    ]
    assert {(row["message_id"], row["priority"], row["ordering_key"]) for row in rows} == {("a", 90, "k")}


async def test_replaying_the_journal_of_a_group_without_order_gives_the_live_state(harness: Harness) -> None:
    await harness.declare("default", "mail")
    await some_life(harness)
    await some_life(harness, 100)
    snapshot = await harness.broker.journal.snapshot(Q)
    assert {copy.address for copy in snapshot.copies} == set(await harness.projection())
    assert snapshot.position.seq == (await ends(harness))[1]
