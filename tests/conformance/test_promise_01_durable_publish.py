"""Promise 1: what a publish returned for is stored, for the right groups, whole or not at all."""

from __future__ import annotations

import pytest

from godwit.brokers.contract import PUBLISH_CHUNK, Receipt
from godwit.core.errors import GroupNotFound, PartialPublish, QueueFull, QueueNotFound
from godwit.core.names import GroupName
from godwit.core.queues import GroupSpec, Overflow
from tests.conformance.harness import LEASE, G, Harness, Q, ids_of

pytestmark = pytest.mark.promise(1)


async def test_a_queue_declared_without_groups_gets_the_group_default(harness: Harness) -> None:
    await harness.declare()
    assert [group.name for group in (await harness.queue_stats()).groups] == ["default"]


async def test_a_published_message_comes_out_as_it_went_in(harness: Harness) -> None:
    await harness.declare()
    sent = harness.envelope(
        "a", payload={"text": "ä \u0000 \U0001f600", "list": [1, 2.5, None, True]}, key="k", priority=7
    )
    assert await harness.broker.publish([sent]) == [Receipt(sent.id, fresh=True)]
    delivery = await harness.pull_one()
    assert delivery.envelope == sent
    assert delivery.open().payload == {"text": "ä \u0000 \U0001f600", "list": [1, 2.5, None, True]}


async def test_receipts_come_in_the_order_of_the_messages(harness: Harness) -> None:
    await harness.declare()
    await harness.declare(queue="other")
    batch = [harness.envelope("a"), harness.envelope("b", queue="other"), harness.envelope("c")]
    assert [receipt.id for receipt in await harness.broker.publish(batch)] == ["a", "b", "c"]
    assert await harness.ids() == ["a", "c"]
    assert await harness.ids(queue="other") == ["b"]


async def test_publishing_nothing_gives_no_receipts(harness: Harness) -> None:
    assert await harness.broker.publish([]) == []


async def test_every_group_gets_its_own_copy(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a", "b")
    assert await harness.ids(group="billing") == ["a", "b"]
    assert await harness.ids(group="mail") == ["a", "b"]


async def test_a_group_added_later_starts_empty(harness: Harness) -> None:
    await harness.declare("billing")
    await harness.publish("a")
    await harness.declare("mail")
    await harness.publish("b")
    assert await harness.ids(group="mail") == ["b"]
    assert await harness.ids(group="billing") == ["a", "b"]


async def test_declaring_again_keeps_messages_and_groups(harness: Harness) -> None:
    await harness.declare("billing")
    await harness.publish("a")
    await harness.declare("billing", max_size=5)
    assert await harness.ids(group="billing") == ["a"]


async def test_an_addressed_message_reaches_that_group_alone(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a", group="mail")
    assert await harness.ids(group="billing") == []
    assert await harness.ids(group="mail") == ["a"]


async def test_published_messages_survive_a_restart(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish(*(f"m{n}" for n in range(250)))
    await harness.restart()
    assert await harness.ids(limit=300, group="billing") == [f"m{n}" for n in range(250)]
    assert (await harness.stats(group="mail")).ready == 250


async def test_another_client_sees_what_was_published(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    other = await harness.another()
    assert ids_of(await other.pull(Q, G, worker="w", limit=5, lease=LEASE)) == ["a"]


async def test_one_unknown_queue_refuses_the_whole_call(harness: Harness) -> None:
    await harness.declare()
    batch = [harness.envelope(f"m{n}") for n in range(250)] + [harness.envelope("x", queue="nowhere")]
    with pytest.raises(QueueNotFound, match="nowhere"):
        await harness.broker.publish(batch)
    assert (await harness.stats()).depth == 0
    assert await harness.events() == ["queue_created", "group_created"]


async def test_one_unknown_group_refuses_the_whole_call(harness: Harness) -> None:
    await harness.declare()
    batch = [harness.envelope("a"), harness.envelope("b", group="nobody")]
    with pytest.raises(GroupNotFound, match="nobody"):
        await harness.broker.publish(batch)
    assert (await harness.stats()).depth == 0
    assert await harness.events() == ["queue_created", "group_created"]


async def test_a_chunk_is_stored_whole_or_not_at_all(harness: Harness) -> None:
    await harness.declare(max_size=PUBLISH_CHUNK - 1)
    with pytest.raises(QueueFull):
        await harness.publish(*(f"m{n}" for n in range(PUBLISH_CHUNK)))
    assert (await harness.stats()).depth == 0


async def test_a_later_chunk_that_fails_names_the_ids_accepted(harness: Harness) -> None:
    await harness.declare(max_size=PUBLISH_CHUNK + 10)
    ids = [f"m{n}" for n in range(PUBLISH_CHUNK + 11)]
    with pytest.raises(PartialPublish) as caught:
        await harness.publish(*ids)
    assert list(caught.value.accepted) == ids[:PUBLISH_CHUNK]
    assert isinstance(caught.value.__cause__, QueueFull)
    assert (await harness.stats()).depth == PUBLISH_CHUNK


async def test_publishing_again_after_a_partial_publish_is_safe(harness: Harness) -> None:
    await harness.declare(max_size=PUBLISH_CHUNK + 10)
    ids = [f"m{n}" for n in range(PUBLISH_CHUNK + 11)]
    with pytest.raises(PartialPublish):
        await harness.publish(*ids)
    await harness.declare(max_size=1_000)
    receipts = await harness.publish(*ids)
    assert [receipt.fresh for receipt in receipts] == [False] * PUBLISH_CHUNK + [True] * 11
    assert await harness.ids(limit=1_000) == ids


async def test_the_error_of_a_first_chunk_is_raised_as_it_is(harness: Harness) -> None:
    await harness.declare(max_size=1)
    with pytest.raises(QueueFull):
        await harness.publish("a", "b")


async def test_the_chunks_of_several_queues_are_stored_in_order(harness: Harness) -> None:
    await harness.declare()
    await harness.declare(queue="small", max_size=1)
    batch = [
        harness.envelope("a"),
        *(harness.envelope(f"s{n}", queue="small") for n in range(2)),
        harness.envelope("b"),
    ]
    with pytest.raises(PartialPublish) as caught:
        await harness.broker.publish(batch)
    assert caught.value.accepted == ("a",)
    assert await harness.ids() == ["a"]
    assert (await harness.stats("small")).depth == 0


async def test_a_queue_without_groups_gives_receipts_and_keeps_nothing(harness: Harness) -> None:
    await harness.declare()
    await harness.broker.remove(Q, G)
    assert [receipt.fresh for receipt in await harness.publish("a")] == [True]
    await harness.declare("late")
    assert await harness.ids(group="late") == []


async def test_a_removed_group_takes_its_messages_with_it(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a")
    await harness.broker.remove(Q, GroupName("mail"))
    await harness.declare("mail")
    assert await harness.ids(group="mail") == []
    assert await harness.ids(group="billing") == ["a"]


async def test_a_removed_queue_comes_back_empty_with_its_numbering_going_on(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", "b")
    await harness.broker.remove(Q)
    assert await harness.broker.stats() == []
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one()
    assert (delivery.message_id, delivery.publish_seq) == ("a", 3)


async def test_publish_seq_is_dense_and_the_same_for_all_copies(harness: Harness) -> None:
    await harness.declare("billing", GroupSpec(name=GroupName("mail"), overflow=Overflow.DROP))
    await harness.publish("a", "b")
    await harness.publish("a", "c")
    for group in ("billing", "mail"):
        assert [delivery.publish_seq for delivery in await harness.pull(10, group=group)] == [1, 2, 3]
