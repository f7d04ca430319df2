"""The dead letters port: listing page by page, replaying, discarding."""

from __future__ import annotations

import asyncio

import pytest

from godwit.brokers.contract import LetterId
from godwit.core.errors import QueueFull
from godwit.core.names import GroupName, QueueName
from tests.conformance.harness import LEASE, Harness, Q, ids_of

pytestmark = pytest.mark.promise(6)


async def dead(harness: Harness, *ids: str, queue: str = Q, group: str = "default") -> None:
    await harness.publish(*ids, queue=queue)
    for delivery in await harness.pull(len(ids), queue=queue, group=group):
        await harness.give_up(delivery)


async def test_dead_letters_are_listed_oldest_first_page_by_page(harness: Harness) -> None:
    await harness.declare()
    ids = [f"m{n:02}" for n in range(25)]
    for name in ids:
        await dead(harness, name)
    got, after = list[str](), None
    while page := await harness.letters(after=after, limit=10):
        assert len(page) <= 10
        got += ids_of(page)
        after = page[-1].id
    assert got == ids


async def test_paging_goes_on_when_the_letter_it_stopped_at_is_gone(harness: Harness) -> None:
    await harness.declare()
    await dead(harness, "a", "b", "c")
    first, *_ = await harness.letters(limit=1)
    await harness.broker.dead_letters.discard([first.id])
    assert ids_of(await harness.letters(after=first.id)) == ["b", "c"]


async def test_a_listing_can_be_limited_to_one_group(harness: Harness) -> None:
    await harness.declare("default", "mail")
    await harness.publish("a", "b")
    await harness.give_up((await harness.pull(1))[0])
    await harness.give_up((await harness.pull(2, group="mail"))[1])
    assert ids_of(await harness.letters(group=GroupName("mail"))) == ["b"]
    assert ids_of(await harness.letters(group=GroupName("default"))) == ["a"]


async def test_a_queue_without_dead_letters_lists_none(harness: Harness) -> None:
    await harness.declare()
    assert await harness.letters() == []


async def test_a_replayed_letter_is_ready_again_with_counters_at_zero_and_its_history(harness: Harness) -> None:
    await harness.declare()
    await dead(harness, "a")
    (letter,) = await harness.letters()
    assert await harness.broker.dead_letters.replay([letter.id]) == []
    assert await harness.letters() == []
    delivery = await harness.pull_one()
    assert (delivery.message_id, delivery.attempt, delivery.failures, delivery.crashes) == ("a", 1, 0, 0)
    assert [error.message for error in delivery.errors] == ["no such user"]
    assert delivery.envelope == letter.envelope
    assert delivery.publish_seq == 2


async def test_a_replay_reaches_the_letters_group_alone(harness: Harness) -> None:
    await harness.declare("default", "mail")
    await dead(harness, "a")
    assert await harness.ids(group="mail") == ["a"]
    await harness.broker.dead_letters.replay([letter.id for letter in await harness.letters()])
    assert await harness.ids(group="mail") == []
    assert await harness.ids() == ["a"]


async def test_a_replayed_letter_goes_to_the_end_of_its_lane(harness: Harness) -> None:
    await harness.declare()
    await dead(harness, "a")
    await harness.publish("b")
    await harness.broker.dead_letters.replay([letter.id for letter in await harness.letters()])
    await harness.publish("c")
    assert await harness.ids() == ["b", "a", "c"]


async def test_a_replay_is_in_the_journal_with_its_former_number(harness: Harness) -> None:
    await harness.declare()
    await dead(harness, "a")
    await harness.broker.dead_letters.replay([letter.id for letter in await harness.letters()])
    last = (await harness.rows())[-1]
    assert (last["event"], last["message_id"], last["publish_seq"], last["former_seq"]) == ("replayed", "a", 2, 1)


async def test_replaying_returns_the_letters_that_do_not_exist_and_replays_the_rest(harness: Harness) -> None:
    await harness.declare()
    await dead(harness, "a", "b")
    one, two = await harness.letters()
    await harness.broker.dead_letters.discard([one.id])
    assert await harness.broker.dead_letters.replay([one.id, two.id, LetterId("nonsense")]) == [one.id, "nonsense"]
    assert await harness.ids() == ["b"]


async def test_a_letter_is_replayed_once(harness: Harness) -> None:
    await harness.declare()
    await dead(harness, "a")
    (letter,) = await harness.letters()
    other = await harness.another()
    answers = await asyncio.gather(
        harness.broker.dead_letters.replay([letter.id]), other.dead_letters.replay([letter.id])
    )
    assert sorted(map(len, answers)) == [0, 1]
    assert await harness.ids() == ["a"]


async def test_a_replay_into_a_full_group_is_refused_as_a_whole(harness: Harness) -> None:
    await harness.declare(max_size=2)
    await dead(harness, "a", "b")
    await harness.publish("c")
    before = await harness.events()
    with pytest.raises(QueueFull):
        await harness.broker.dead_letters.replay([letter.id for letter in await harness.letters()])
    assert ids_of(await harness.letters()) == ["a", "b"]
    assert (await harness.stats()).depth == 1
    assert await harness.events() == before


async def test_a_replayed_letter_that_dies_again_is_a_letter_again(harness: Harness) -> None:
    await harness.declare()
    await dead(harness, "a")
    await harness.broker.dead_letters.replay([letter.id for letter in await harness.letters()])
    await harness.give_up(await harness.pull_one(), text="again")
    (letter,) = await harness.letters()
    assert (letter.publish_seq, [error.message for error in letter.errors]) == (2, ["no such user", "again"])


async def test_a_discarded_letter_is_gone_and_journaled(harness: Harness) -> None:
    await harness.declare()
    await dead(harness, "a", "b")
    one, _ = await harness.letters()
    assert await harness.broker.dead_letters.discard([one.id, LetterId("nonsense")]) == ["nonsense"]
    assert await harness.broker.dead_letters.discard([one.id]) == [one.id]
    assert ids_of(await harness.letters()) == ["b"]
    assert (await harness.stats()).dead == 1
    last = (await harness.rows())[-1]
    assert (last["event"], last["message_id"], last.get("target")) == ("discarded", "a", None)


async def test_letters_of_several_queues_are_replayed_in_one_call(harness: Harness) -> None:
    for queue in ("one", "two"):
        await harness.declare(queue=queue, dead_letter_queue=QueueName("dead"))
        await dead(harness, queue, queue=queue)
        await harness.let_pass(LEASE)
    letters = await harness.letters("dead")
    assert await harness.broker.dead_letters.replay([letter.id for letter in letters]) == []
    assert await harness.ids(queue="one") == ["one"]
    assert await harness.ids(queue="two") == ["two"]


async def test_letters_of_different_queues_and_groups_have_different_ids(harness: Harness) -> None:
    for queue in ("one", "two"):
        await harness.declare("default", "mail", queue=queue)
        await harness.publish("same", queue=queue)
        for group in ("default", "mail"):
            await harness.give_up(await harness.pull_one(queue=queue, group=group))
    assert len({letter.id for queue in ("one", "two") for letter in await harness.letters(queue)}) == 4


@pytest.mark.parametrize("removed", ["group", "queue"])
async def test_a_letter_id_is_never_used_again_for_another_letter(harness: Harness, removed: str) -> None:
    await harness.declare()
    await dead(harness, "a")
    (old,) = await harness.letters()
    await harness.broker.remove(Q, old.group if removed == "group" else None)
    await harness.declare("default")
    await dead(harness, "b")
    assert await harness.broker.dead_letters.discard([old.id]) == [old.id]
    assert await harness.broker.dead_letters.replay([old.id]) == [old.id]
    assert ids_of(await harness.letters()) == ["b"]
