"""Promise 3: an ack id is valid once; a stale or unknown one changes nothing."""

from __future__ import annotations

import pytest

from godwit.brokers.contract import Ack, GiveUp, HandBack, Nack, Settlement
from godwit.core.failures.failure import FailureKind
from godwit.core.names import AckId
from tests.conformance.harness import LEASE, LONG, MOMENT, G, Harness, Q

pytestmark = pytest.mark.promise(3)


def every_settlement(ack_id: AckId) -> list[Settlement]:
    return [Ack(ack_id), Nack(ack_id), GiveUp(ack_id, FailureKind.PERMANENT), HandBack(ack_id)]


async def test_a_late_ack_does_not_settle_the_next_holders_delivery(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    first = await harness.pull_one()
    await harness.let_pass(LEASE + MOMENT)
    second = await harness.pull_one(worker="worker-2", lease=LONG)
    for settlement in every_settlement(first.ack_id):
        assert await harness.broker.settle([settlement]) == [first.ack_id]
    assert await harness.broker.extend([first.ack_id], LEASE) == [first.ack_id]
    assert (await harness.stats()).leased == 1
    assert await harness.broker.settle([Ack(second.ack_id)]) == []
    assert (await harness.stats()).depth == 0


@pytest.mark.parametrize("first", range(4), ids=["ack", "retry", "give up", "hand back"])
async def test_an_ack_id_is_valid_once(harness: Harness, first: int) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one(lease=LONG)
    assert await harness.broker.settle([every_settlement(delivery.ack_id)[first]]) == []
    before = await harness.broker.stats()
    for again in every_settlement(delivery.ack_id):
        assert await harness.broker.settle([again]) == [delivery.ack_id]
    assert await harness.broker.stats() == before


async def test_the_same_ack_id_twice_in_one_call_settles_once(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one()
    assert await harness.broker.settle([Nack(delivery.ack_id), Ack(delivery.ack_id)]) == [delivery.ack_id]
    assert (await harness.stats()).ready == 1


@pytest.mark.parametrize("ack_id", ["", "nonsense", "orders", "a:b:c", "1", "ä", "x" * 500, "orders#0:default:1:1"])
async def test_an_unknown_ack_id_is_refused_and_changes_nothing(harness: Harness, ack_id: str) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.pull_one(lease=LONG)
    before = await harness.broker.stats()
    for settlement in every_settlement(AckId(ack_id)):
        assert await harness.broker.settle([settlement]) == [ack_id]
    assert await harness.broker.extend([AckId(ack_id)], LEASE) == [ack_id]
    assert await harness.broker.stats() == before


async def test_a_batch_settles_what_is_valid_and_returns_the_rest_in_order(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", "b", "c")
    one, two, three = await harness.pull(3)
    await harness.broker.settle([Ack(two.ack_id)])
    refused = await harness.broker.settle([Ack(AckId("nonsense")), Ack(one.ack_id), Ack(two.ack_id), Ack(three.ack_id)])
    assert refused == ["nonsense", two.ack_id]
    assert (await harness.stats()).depth == 0


async def test_every_delivery_has_another_ack_id(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a")
    seen = set()
    for _ in range(5):
        for group in ("billing", "mail"):
            delivery = await harness.pull_one(group=group)
            seen.add(delivery.ack_id)
            await harness.broker.settle([HandBack(delivery.ack_id)])
    assert len(seen) == 10


async def test_an_ack_id_of_a_removed_group_or_queue_is_stale(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a")
    billing, mail = await harness.pull_one(group="billing"), await harness.pull_one(group="mail")
    await harness.broker.remove(Q, billing.group)
    assert await harness.broker.settle([Ack(billing.ack_id)]) == [billing.ack_id]
    await harness.broker.remove(Q)
    assert await harness.broker.settle([Ack(mail.ack_id)]) == [mail.ack_id]


async def test_an_ack_id_does_not_settle_in_a_queue_declared_anew(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    old = await harness.pull_one(lease=LONG)
    await harness.broker.remove(Q)
    await harness.declare()
    await harness.publish("a")
    await harness.pull_one(lease=LONG)
    assert await harness.broker.settle([Ack(old.ack_id)]) == [old.ack_id]
    assert (await harness.stats(group=G)).leased == 1


async def test_a_refused_ack_id_of_a_known_queue_is_in_the_journal(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one()
    await harness.broker.settle([Ack(delivery.ack_id)])
    await harness.broker.settle([Ack(delivery.ack_id)])
    assert (await harness.events())[-2:] == ["acked", "ack_refused"]


async def test_settling_nothing_refuses_nothing(harness: Harness) -> None:
    assert await harness.broker.settle([]) == []
    assert await harness.broker.extend([], LEASE) == []


async def test_a_lease_is_settled_through_any_client(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one(lease=LONG)
    other = await harness.another()
    assert await other.settle([Ack(delivery.ack_id)]) == []
    assert await harness.broker.settle([Ack(delivery.ack_id)]) == [delivery.ack_id]
