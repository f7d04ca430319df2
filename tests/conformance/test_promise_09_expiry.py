"""Promise 9: an expired message is never delivered; it becomes a dead letter of kind expired."""

from __future__ import annotations

import pytest

from godwit.brokers.contract import Ack
from godwit.core.failures.failure import FailureKind
from godwit.core.queues import GroupSpec
from tests.conformance.harness import LEASE, LONG, MOMENT, G, Harness, ids_of

pytestmark = pytest.mark.promise(9)


async def expired(harness: Harness) -> list[str]:
    letters = await harness.letters()
    assert all(letter.kind is FailureKind.EXPIRED for letter in letters)
    return ids_of(letters)


async def test_a_message_past_its_expiry_is_a_dead_letter_and_not_delivered(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", expires=LEASE)
    await harness.publish("b")
    await harness.outage(LEASE + MOMENT)
    assert ids_of(await harness.pull(5)) == ["b"]
    assert await expired(harness) == ["a"]


async def test_a_message_before_its_expiry_is_delivered(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", expires=LEASE)
    await harness.let_pass(LEASE / 2)
    assert await harness.ids() == ["a"]


async def test_maintain_expires_messages_without_anybody_pulling(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", expires=LEASE)
    await harness.let_pass(LEASE + MOMENT)
    stats = await harness.stats()
    assert (stats.dead, stats.depth) == (1, 0)


async def test_ttl_counts_from_creation(harness: Harness) -> None:
    await harness.declare(ttl=LEASE * 2)
    early = harness.envelope("early")
    await harness.let_pass(LEASE)
    await harness.broker.publish([early])
    await harness.publish("late")
    await harness.let_pass(LEASE + MOMENT)
    assert ids_of(await harness.pull(5)) == ["late"]
    assert await expired(harness) == ["early"]


async def test_ttl_counts_from_deliver_at_when_the_message_is_due_later(harness: Harness) -> None:
    await harness.declare(ttl=LEASE)
    await harness.publish("a", due=LEASE * 2)
    await harness.let_pass(LEASE * 2 + MOMENT)
    assert ids_of(await harness.pull()) == ["a"]


async def test_the_earlier_of_expiry_and_ttl_counts(harness: Harness) -> None:
    await harness.declare(ttl=LEASE)
    await harness.publish("long", expires=LONG)
    await harness.publish("short", expires=LEASE / 2)
    await harness.let_pass(LEASE / 2 + MOMENT)
    assert await expired(harness) == ["short"]
    await harness.let_pass(LEASE)
    assert await expired(harness) == ["short", "long"]


async def test_a_message_already_expired_is_accepted_and_expires_at_the_next_look(harness: Harness) -> None:
    await harness.declare()
    assert [receipt.fresh for receipt in await harness.publish("a", expires=-LEASE)] == [True]
    assert await harness.pull() == []
    assert await expired(harness) == ["a"]


async def test_a_leased_message_expires_only_when_it_has_come_back(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", expires=LEASE)
    delivery = await harness.pull_one(lease=LONG)
    await harness.let_pass(LEASE * 2)
    assert (await harness.stats()).leased == 1
    await harness.retry(delivery)
    assert await harness.pull() == []
    assert await expired(harness) == ["a"]


async def test_a_leased_message_past_its_expiry_can_still_be_acked(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", expires=LEASE)
    delivery = await harness.pull_one(lease=LONG)
    await harness.let_pass(LEASE * 2)
    assert await harness.broker.settle([Ack(delivery.ack_id)]) == []
    assert await expired(harness) == []


async def test_a_lease_taken_back_after_the_expiry_expires_in_the_same_look(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, forgive_outages=False))
    await harness.publish("a", expires=LEASE)
    await harness.pull_one()
    await harness.outage(LEASE * 2)
    assert await harness.pull() == []
    assert await expired(harness) == ["a"]
    assert (await harness.events())[-2:] == ["lease_expired", "message_expired"]


async def test_a_delayed_message_expires_while_it_waits(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", due=LONG, expires=LEASE)
    await harness.let_pass(LEASE + MOMENT)
    assert await expired(harness) == ["a"]


async def test_a_blocked_message_expires_while_it_waits(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, message_ordering=True))
    await harness.publish("a1", key="a")
    await harness.publish("a2", key="a", expires=LEASE)
    await harness.pull_one(lease=LONG)
    await harness.let_pass(LEASE + MOMENT)
    assert await expired(harness) == ["a2"]
    assert (await harness.stats()).leased == 1


async def test_each_groups_copy_expires_and_is_journaled(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a", expires=LEASE)
    await harness.let_pass(LEASE + MOMENT)
    assert (await harness.events()).count("message_expired") == 2


async def test_a_replayed_letter_is_free_of_expiry_and_ttl(harness: Harness) -> None:
    await harness.declare(ttl=LEASE)
    await harness.publish("a", expires=LEASE)
    await harness.let_pass(LEASE + MOMENT)
    await harness.broker.dead_letters.replay([letter.id for letter in await harness.letters()])
    await harness.let_pass(LEASE * 2)
    assert await harness.ids() == ["a"]
