"""Promise 2: while a lease holds no other worker gets the message."""

from __future__ import annotations

import asyncio

import pytest

from godwit.brokers.contract import Ack, Nack
from godwit.core.names import AckId, GroupName
from godwit.core.queues import GroupSpec
from tests.conformance.harness import LEASE, LONG, MOMENT, G, Harness, Q, ids_of

pytestmark = pytest.mark.promise(2)


async def test_a_leased_message_is_not_given_to_anybody_else(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    assert ids_of(await harness.pull()) == ["a"]
    assert await harness.pull(worker="worker-2") == []
    await harness.let_pass(LEASE / 2)
    assert await harness.pull(worker="worker-2") == []


async def test_a_delivery_says_when_its_lease_ends_by_the_brokers_clock(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one()
    assert delivery.lease_until_ms == delivery.delivered_at_ms + 400
    assert abs(delivery.delivered_at_ms - harness.now_ms) < 1_000


async def test_a_lease_that_ran_out_is_taken_back_by_the_next_pull(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, forgive_outages=False))
    await harness.publish("a")
    await harness.pull_one()
    await harness.outage(LEASE + MOMENT)
    again = await harness.pull_one(worker="worker-2")
    assert (again.message_id, again.attempt) == ("a", 2)


async def test_a_lease_that_ran_out_is_taken_back_by_maintain(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.pull_one()
    await harness.let_pass(LEASE + MOMENT)
    stats = await harness.stats()
    assert (stats.ready, stats.leased) == (1, 0)


async def test_a_late_ack_that_arrives_before_the_lease_is_taken_back_counts(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one()
    await harness.outage(LEASE * 2)
    assert await harness.broker.settle([Ack(delivery.ack_id)]) == []
    await harness.broker.maintain()
    assert (await harness.stats()).depth == 0


async def test_a_late_retry_that_arrives_before_the_lease_is_taken_back_counts(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one()
    await harness.outage(LEASE * 2)
    assert await harness.broker.settle([Nack(delivery.ack_id)]) == []
    again = await harness.pull_one()
    assert (again.attempt, again.failures, again.crashes) == (2, 1, 0)


async def test_extending_lets_a_lease_end_that_long_from_now(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one()
    await harness.let_pass(LEASE / 2)
    assert await harness.broker.extend([delivery.ack_id], LEASE * 2) == []
    await harness.let_pass(LEASE)
    assert await harness.pull(worker="worker-2") == []
    await harness.let_pass(LEASE + MOMENT)
    assert ids_of(await harness.pull(worker="worker-2")) == ["a"]


async def test_extending_can_shorten_a_lease(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one(lease=LONG)
    assert await harness.broker.extend([delivery.ack_id], LEASE) == []
    await harness.let_pass(LEASE + MOMENT)
    assert ids_of(await harness.pull(worker="worker-2")) == ["a"]


async def test_extending_names_the_ack_ids_that_are_not_valid_and_extends_the_rest(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", "b")
    first, second = await harness.pull(2)
    await harness.broker.settle([Ack(first.ack_id)])
    assert await harness.broker.extend([first.ack_id, second.ack_id, AckId("nonsense")], LONG) == [
        first.ack_id,
        "nonsense",
    ]
    await harness.let_pass(LEASE + MOMENT)
    assert await harness.pull() == []


async def test_leases_of_one_group_do_not_touch_the_others(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a")
    held = await harness.pull_one(group="billing")
    assert ids_of(await harness.pull(group="mail")) == ["a"]
    await harness.broker.settle([Ack(held.ack_id)])
    assert (await harness.stats(group="mail")).leased == 1


async def test_leases_survive_a_restart_of_the_client(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one(lease=LONG)
    await harness.restart()
    assert await harness.pull() == []
    assert await harness.broker.settle([Ack(delivery.ack_id)]) == []


async def test_many_pulls_at_once_never_share_a_message(harness: Harness) -> None:
    await harness.declare()
    await harness.publish(*(f"m{n}" for n in range(150)))
    brokers = [harness.broker, await harness.another()]
    pulls = [brokers[n % 2].pull(Q, G, worker=f"w{n}", limit=7, lease=LONG) for n in range(30)]
    got = [delivery for deliveries in await asyncio.gather(*pulls) for delivery in deliveries]
    assert len(got) == 150
    assert len(set(ids_of(got))) == len({delivery.ack_id for delivery in got}) == 150


async def test_maintain_ten_times_at_once_changes_nothing_more_than_once(harness: Harness) -> None:
    await harness.declare(
        GroupSpec(name=G, forgive_outages=False, max_crashes=5),
        GroupSpec(name=GroupName("poison"), max_crashes=1, forgive_outages=False),
    )
    await harness.publish(*(f"m{n}" for n in range(10)))
    await harness.pull(10)
    await harness.pull(10, group="poison")
    await harness.outage(LEASE + MOMENT)
    other = await harness.another()
    counts = await asyncio.gather(*((harness.broker, other)[n % 2].maintain() for n in range(10)))
    assert sum(1 for count in counts if count) == 1
    events = await harness.events()
    assert (events.count("lease_expired"), events.count("dead_lettered")) == (10, 10)
    assert {delivery.crashes for delivery in await harness.pull(20)} == {1}
    assert len(await harness.letters(group=GroupName("poison"))) == 10


async def test_maintain_with_nothing_to_do_says_so_and_writes_nothing(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.pull_one(lease=LONG)
    before = await harness.events()
    assert await harness.broker.maintain() == 0
    assert await harness.events() == before
