"""Counters and indexes that do not agree with what is stored: `maintain` finds them, mends them, and says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest
import redis

from godwit.brokers.contract import Ack
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.recount import mended_groups
from godwit.core.names import GroupName
from tests.brokers.redis.prepared_queue import KEYED, LEASE, SOON, G, PreparedQueue, Q, opened_queue
from tests.waiting import eventually

PART: Final = {name: place for place, name in enumerate(keys.GROUP_PARTS)}
Damage = Callable[[redis.Redis, GroupName], object]


def key(part: str, group: GroupName) -> str:
    return keys.block(Q, group)[PART[part]]


def gauge(client: redis.Redis, group: GroupName, change: Callable[[list[int]], None]) -> None:
    """Change what a group is said to hold: depth, bytes, leased bytes, ..."""
    meta, field = keys.step(Q)[0], f"g:{group}"
    stored: Any = client.hget(meta, field)
    numbers = msgspec.msgpack.decode(b"\x99" + stored, type=list[int])
    change(numbers)
    client.hset(meta, field, msgspec.msgpack.encode(numbers)[1:])


def counted(place: int, by: int) -> Damage:
    def damage(client: redis.Redis, group: GroupName) -> None:
        def change(numbers: list[int]) -> None:
            numbers[place] += by

        gauge(client, group, change)
        client.hset(key("group", group), "recount", 1)

    return damage


def of_copies(by: int) -> Damage:
    return lambda client, group: gauge(client, group, lambda numbers: numbers.__setitem__(0, numbers[0] + by))


def first_member(client: redis.Redis, part: str, group: GroupName) -> bytes:
    members: Any = client.zrange(key(part, group), 0, 0)
    return bytes(members[0])


def without_places(client: redis.Redis, group: GroupName) -> None:
    client.delete(*(key(part, group) for part in ("again", "delayed", "blocked")))


def without_copies(client: redis.Redis, group: GroupName) -> None:
    client.delete(key("parked", group))


def without_lanes(client: redis.Redis, group: GroupName) -> None:
    for lane in range(4):
        client.xtrim(key(f"l{lane}", group), maxlen=0)


def without_leases(client: redis.Redis, group: GroupName) -> None:
    client.delete(key("leases", group), key("batches", group))
    client.hset(key("group", group), "recount", 1)


def in_two_places(client: redis.Redis, group: GroupName) -> None:
    members: Any = client.hkeys(key("parked", group))
    for ref in members:
        client.zadd(key("again", group), {ref: int(ref)})


def bookmark_lost(client: redis.Redis, group: GroupName) -> None:
    client.hdel(key("group", group), *(f"c{lane}" for lane in range(4)))
    client.hset(key("group", group), "recount", 1)


def heads_lost(client: redis.Redis, group: GroupName) -> None:
    client.delete(key("heads", group))
    client.hset(key("group", group), "recount", 1)


def heads_of_nothing(client: redis.Redis, group: GroupName) -> None:
    for name in client.hkeys(key("heads", group)):
        client.hset(key("heads", group), name, 999)
    client.hset(key("group", group), "recount", 1)


def numbers_too_low(client: redis.Redis, group: GroupName) -> None:
    client.hset(key("group", group), mapping={"letters": 0, "recount": 1})


DAMAGES: Final[dict[str, Damage]] = {
    "a copy too many is counted": of_copies(1),
    "a copy is not counted": of_copies(-1),
    "a depth below zero": of_copies(-1_000),
    "bytes too few": counted(1, -5),
    "leased bytes too many": counted(2, 5),
    "copies that wait nowhere": without_places,
    "places without a copy": without_copies,
    "lanes that lost their copies": without_lanes,
    "leases that are gone": without_leases,
    "copies in two places": in_two_places,
    "bookmarks that are gone": bookmark_lost,
    "heads that are gone": heads_lost,
    "heads of nothing": heads_of_nothing,
    "numbers of dead letters too low": numbers_too_low,
}


async def agreement(prepared: PreparedQueue, group: GroupName) -> None:
    """Check what is counted against a list of what is stored."""
    stats = {one.name: one for queue in await prepared.broker.stats() if queue.name == Q for one in queue.groups}[group]
    copies = [one for one in (await prepared.broker.journal.snapshot(Q)).copies if one.group == group]
    open_copies = [one for one in copies if one.state != "dead"]
    assert stats.depth == len(open_copies)
    assert stats.leased == sum(one.state == "leased" for one in copies)
    assert stats.ready >= 0
    assert (stats.bytes == 0) == (stats.depth == 0)


async def drained(prepared: PreparedQueue, group: GroupName) -> list[str]:
    """Let everything become due and return what comes, each message acked."""
    got: list[str] = []
    for _ in range(60):
        prepared.clock.advance(SOON)
        await prepared.broker.maintain()
        found = await prepared.pull(group, 100)
        assert await prepared.broker.settle([Ack(one.ack_id, run_ms=1) for one in found]) == []
        got += [one.message_id for one in found]
    return got


@pytest.mark.parametrize(
    ("case", "group"),
    [(case, group) for case in DAMAGES for group in (G, KEYED) if group == KEYED or not case.startswith("heads")],
)
async def test_what_does_not_agree_with_what_is_stored_is_mended_and_the_queue_goes_on(
    case: str, group: GroupName
) -> None:
    async with opened_queue() as prepared:
        with prepared.server.client() as client:
            copies = (await prepared.broker.journal.snapshot(Q)).copies
            before = {one.message_id for one in copies if one.group == group and one.state != "dead"}
            kept_copies = case not in {"places without a copy", "lanes that lost their copies"}
            DAMAGES[case](client, group)
            await prepared.broker.maintain()
            await agreement(prepared, group)
            (mended,) = [one for one in await all_mended(prepared) if one.group == group]
            assert (mended.corrections > 0, mended.pending, mended.at_ms) == (True, False, prepared.clock.now_ms())
            assert mended.what
            assert await prepared.broker.maintain() == 0, "nothing is left to mend"
        await prepared.broker.publish([prepared.message("fresh", ordering_key="k0")])
        got = await drained(prepared, group)
        assert "fresh" in got
        if kept_copies:
            expired = {"e1", "e2", "e3", "e4", "e5"}
            assert before - expired <= set(got), "a copy is never delivered"
        stats = {one.name: one for queue in await prepared.broker.stats() if queue.name == Q for one in queue.groups}
        assert (stats[group].depth, stats[group].bytes, stats[group].leased_bytes) == (0, 0, 0)


async def all_mended(prepared: PreparedQueue) -> list[Any]:
    return await mended_groups(prepared.broker._reach, await prepared.broker._catalog.all())


async def test_a_sound_queue_is_never_counted_anew() -> None:
    async with opened_queue() as prepared:
        for group in (G, KEYED):
            names = (*keys.step(Q), *keys.block(Q, group))
            found = await prepared.broker._reach.run("recount", Q, names, (group,))
            assert found == [0, b""], group
        await drained(prepared, G)
        await drained(prepared, KEYED)
        assert await all_mended(prepared) == []


async def test_a_note_that_nothing_was_wrong_about_is_not_followed_every_second() -> None:
    async with opened_queue() as prepared:
        with prepared.server.client() as client:
            client.delete(key("parked", G))
            client.set(key("parked", G), "foreign")
            for _ in range(3):
                await prepared.broker.maintain()
            assert len(prepared.broker._maintenance._sound_until) == 2
            client.delete(key("parked", G))
            prepared.broker._maintenance._sound_until.clear()
            await prepared.broker.maintain()
        await agreement(prepared, G)


async def test_a_lease_whose_copy_is_gone_stops_neither_the_pull_nor_the_upkeep() -> None:
    async with opened_queue() as prepared:
        with prepared.server.client() as client:
            client.delete(key("parked", G))
            for lane in range(4):
                client.xtrim(key(f"l{lane}", G), maxlen=0)
        prepared.clock.advance(LEASE)
        assert await prepared.pull(G, 10) == []
        assert await prepared.broker.extend([one.ack_id for one in prepared.held], LEASE) == [
            one.ack_id for one in prepared.held
        ]

        async def empty() -> bool:
            await prepared.broker.maintain()
            (stats,) = [one for queue in await prepared.broker.stats() for one in queue.groups if one.name == G]
            return (stats.depth, stats.leased) == (0, 0)

        await eventually(empty)


async def test_what_lies_before_the_bookmark_without_a_lease_is_found_when_nothing_is_leased() -> None:
    async with opened_queue() as prepared:
        await drained(prepared, G)
        await prepared.broker.publish([prepared.message("skipped")])
        with prepared.server.client() as client:
            ((entry, _),) = client.xrange(key("l1", G))
            client.hset(key("group", G), "c1", entry)
        assert await prepared.pull(G, 10) == []
        assert await prepared.broker.maintain() == 1
        assert [one.message_id for one in await prepared.pull(G, 10)] == ["skipped"]
