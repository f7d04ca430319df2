"""Cancelling one message and purging a queue: what waits goes, what is leased or dead stays."""

from __future__ import annotations

from datetime import timedelta

import pytest

from godwit.brokers.contract import Ack
from godwit.core.names import GroupName, MessageId
from godwit.core.queues import GroupSpec
from tests.conformance.harness import LONG, G, Harness, Q, ids_of


async def test_a_cancelled_message_is_not_delivered_to_any_group(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a", "b")
    assert await harness.broker.cancel(Q, MessageId("a")) is True
    assert await harness.ids(group="billing") == ["b"]
    assert await harness.ids(group="mail") == ["b"]


@pytest.mark.parametrize("place", ["ready", "delayed", "again", "blocked"])
async def test_a_message_is_cancelled_wherever_it_waits(harness: Harness, place: str) -> None:
    await harness.declare(GroupSpec(name=G, message_ordering=not harness.gap(7)))
    if place == "blocked":
        await harness.publish("head", key="k", due=LONG)
    await harness.publish("a", key="k", due=LONG if place == "delayed" else None)
    if place == "again":
        await harness.retry(await harness.pull_one())
    before = (await harness.stats()).depth
    assert await harness.broker.cancel(Q, MessageId("a"))
    assert (await harness.stats()).depth == before - 1
    assert await harness.pull(5) == []


async def test_a_leased_copy_is_not_cancelled(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a")
    held = await harness.pull_one(group="billing", lease=LONG)
    assert await harness.broker.cancel(Q, MessageId("a")) is True
    assert await harness.broker.cancel(Q, MessageId("a")) is False
    assert await harness.broker.settle([Ack(held.ack_id)]) == []
    assert await harness.ids(group="mail") == []


async def test_a_dead_copy_is_not_cancelled(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.give_up(await harness.pull_one())
    assert await harness.broker.cancel(Q, MessageId("a")) is False
    assert ids_of(await harness.letters()) == ["a"]


async def test_cancelling_an_unknown_message_says_so(harness: Harness) -> None:
    await harness.declare()
    assert await harness.broker.cancel(Q, MessageId("nobody")) is False


async def test_purging_deletes_everything_that_waits_in_every_group_and_counts_it(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a", "b", "c")
    await harness.publish("later", due=LONG)
    held = await harness.pull_one(group="billing", lease=LONG)
    await harness.give_up(await harness.pull_one(group="mail"))
    assert await harness.broker.purge(Q) == 6
    assert (await harness.stats(group="billing")).depth == 1
    assert (await harness.stats(group="mail")).dead == 1
    assert await harness.broker.settle([Ack(held.ack_id)]) == []
    assert await harness.broker.purge(Q) == 0


async def test_purging_one_group_leaves_the_others(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a", "b")
    assert await harness.broker.purge(Q, GroupName("mail")) == 2
    assert await harness.ids(group="billing") == ["a", "b"]


async def test_a_purged_queue_goes_on_working(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, message_ordering=not harness.gap(7)), max_size=2)
    await harness.publish("a1", "a2", key="a")
    await harness.broker.purge(Q)
    await harness.publish("a3", "a4", key="a")
    assert [name for _ in range(2) for name in await harness.ids(5)] == ["a3", "a4"]


async def test_cancel_finds_every_message_of_an_id_published_twice_in_one_call(harness: Harness) -> None:
    await harness.declare(dedup_window=timedelta(0))
    await harness.publish("a", "a", "b")
    assert await harness.broker.cancel(Q, harness.envelope("a").id)
    assert await harness.ids() == ["b"]
