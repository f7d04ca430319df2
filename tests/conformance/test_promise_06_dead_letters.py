"""Promise 6: dead letters stay with their queue and group, with all they had, and can be fed to a queue."""

from __future__ import annotations

from typing import Any

import pytest

from godwit.core.failures.failure import FailureKind
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import GroupSpec
from tests.conformance.harness import LEASE, LONG, Harness, Q, ids_of

pytestmark = pytest.mark.promise(6)

DLQ = QueueName("orders.dead")


async def dead(harness: Harness, *ids: str, queue: str = Q, **fields: Any) -> None:
    """Publish messages and give up on them."""
    await harness.publish(*ids, queue=queue, **fields)
    for delivery in await harness.pull(len(ids), queue=queue):
        await harness.give_up(delivery)


async def test_a_message_given_up_on_is_a_dead_letter_of_its_queue_and_group(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a")
    await harness.give_up(await harness.pull_one(group="billing"))
    (letter,) = await harness.letters()
    assert (letter.queue, letter.group, letter.envelope.id, letter.kind) == (Q, "billing", "a", FailureKind.PERMANENT)
    assert await harness.ids(group="mail") == ["a"]


async def test_a_dead_letter_keeps_id_times_key_body_counters_and_history(harness: Harness) -> None:
    await harness.declare()
    sent = harness.envelope("a", key="k", priority=90, payload={"n": 1}, expires=LONG)
    await harness.broker.publish([sent])
    await harness.retry(await harness.pull_one(), text="first")
    await harness.give_up(await harness.pull_one(), text="second")
    (letter,) = await harness.letters()
    assert letter.envelope == sent
    assert (letter.publish_seq, letter.attempt, letter.failures, letter.crashes) == (1, 2, 2, 0)
    assert [error.message for error in letter.errors] == ["first", "second"]
    assert abs(letter.dead_at_ms - harness.now_ms) < 1_000


@pytest.mark.parametrize("kind", list(FailureKind))
async def test_a_dead_letter_keeps_the_kind_it_was_given(harness: Harness, kind: FailureKind) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.give_up(await harness.pull_one(), kind)
    assert [letter.kind for letter in await harness.letters()] == [kind]


async def test_a_dead_letter_is_counted_as_dead_and_no_longer_in_the_depth(harness: Harness) -> None:
    await harness.declare(max_size=1)
    await dead(harness, "a")
    stats = await harness.stats()
    assert (stats.dead, stats.depth, stats.bytes, stats.full) == (1, 0, 0, False)
    await harness.publish("b")


async def test_dead_letters_survive_a_restart(harness: Harness) -> None:
    await harness.declare()
    await dead(harness, "a")
    before = await harness.letters()
    await harness.restart()
    assert await harness.letters() == before


async def test_a_dead_letter_is_never_delivered(harness: Harness) -> None:
    await harness.declare()
    await dead(harness, "a")
    await harness.let_pass(LEASE * 2)
    assert await harness.pull(5) == []


async def test_queues_that_name_the_same_dead_letter_queue_are_listed_together(harness: Harness) -> None:
    await harness.declare(queue="one", dead_letter_queue=DLQ)
    await harness.declare(queue="two", dead_letter_queue=DLQ)
    await harness.declare(queue="three")
    for queue in ("two", "one", "three"):
        await dead(harness, queue, queue=queue)
        await harness.let_pass(LEASE)
    assert sorted(ids_of(await harness.letters(DLQ))) == ["one", "two"]
    assert ids_of(await harness.letters("one")) == ["one"]


async def test_dead_letters_are_fed_into_a_declared_dead_letter_queue(harness: Harness) -> None:
    await harness.declare(queue=DLQ)
    await harness.declare(dead_letter_queue=DLQ)
    await dead(harness, "a", "b", key="k", payload={"n": 1})
    assert await harness.broker.maintain() > 0
    assert await harness.letters() == []
    assert (await harness.stats()).dead == 0
    deliveries = await harness.pull(5, queue=DLQ)
    assert ids_of(deliveries) == ["a", "b"]
    first = deliveries[0]
    assert (first.queue, first.envelope.ordering_key, first.attempt) == (DLQ, "k", 1)
    assert first.open().payload == {"n": 1}


async def test_fed_messages_are_journaled_on_both_sides(harness: Harness) -> None:
    await harness.declare(queue=DLQ)
    await harness.declare(dead_letter_queue=DLQ)
    await dead(harness, "a")
    await harness.broker.maintain()
    last = (await harness.rows())[-1]
    assert (last["event"], last["message_id"], last["target"]) == ("discarded", "a", DLQ)
    assert (await harness.events(DLQ))[-1] == "enqueued"


async def test_feeding_ignores_deduplication(harness: Harness) -> None:
    await harness.declare(queue=DLQ)
    await harness.declare("billing", "mail", dead_letter_queue=DLQ)
    await harness.publish("a")
    for group in ("billing", "mail"):
        await harness.give_up(await harness.pull_one(group=group))
    await harness.broker.maintain()
    assert await harness.ids(queue=DLQ) == ["a", "a"]


async def test_fed_messages_lose_expiry_due_time_and_group(harness: Harness) -> None:
    await harness.declare(queue=DLQ)
    await harness.declare("billing", dead_letter_queue=DLQ)
    await harness.publish("a", group="billing", due=-LEASE, expires=LEASE)
    await harness.give_up(await harness.pull_one(group="billing"))
    await harness.let_pass(LEASE * 2)
    (fed,) = await harness.pull(queue=DLQ)
    assert (fed.envelope.group, fed.envelope.expires_at_ms, fed.envelope.deliver_at_ms) == (None, None, None)


async def test_letters_wait_while_the_dead_letter_queue_is_full(harness: Harness) -> None:
    await harness.declare(queue=DLQ, max_size=1)
    await harness.declare(dead_letter_queue=DLQ)
    await dead(harness, "a", "b")
    await harness.broker.maintain()
    assert ids_of(await harness.letters()) == ["b"]
    assert await harness.ids(queue=DLQ) == ["a"]
    await harness.broker.maintain()
    assert await harness.ids(queue=DLQ) == ["b"]


async def test_letters_stay_where_they_are_while_the_dead_letter_queue_is_not_declared(harness: Harness) -> None:
    await harness.declare(dead_letter_queue=DLQ)
    await dead(harness, "a")
    await harness.broker.maintain()
    assert ids_of(await harness.letters()) == ["a"]
    await harness.declare(queue=DLQ)
    await harness.broker.maintain()
    assert await harness.ids(queue=DLQ) == ["a"]


async def test_a_dead_letter_queue_without_groups_is_not_fed(harness: Harness) -> None:
    await harness.declare(queue=DLQ)
    await harness.broker.remove(DLQ, GroupName("default"))
    await harness.declare(dead_letter_queue=DLQ)
    await dead(harness, "a")
    await harness.broker.maintain()
    assert ids_of(await harness.letters()) == ["a"]


async def test_removing_a_group_or_queue_removes_its_dead_letters(harness: Harness) -> None:
    await harness.declare("default", GroupSpec(name=GroupName("mail")))
    await harness.publish("a")
    for group in ("default", "mail"):
        await harness.give_up(await harness.pull_one(group=group))
    await harness.broker.remove(Q, GroupName("mail"))
    assert [letter.group for letter in await harness.letters()] == ["default"]
    await harness.broker.remove(Q)
    await harness.declare()
    assert await harness.letters() == []
