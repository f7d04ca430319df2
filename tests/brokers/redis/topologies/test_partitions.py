"""Queues of several partitions: where messages go, what holds per partition, and growing under load."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from datetime import timedelta
from random import Random

import pytest

from godwit.brokers.contract import Ack, Delivery, GiveUp, HandBack, Nack
from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.client.topology import slot_of
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.layout.partitions import LaidMessages, by_path, partition_of, path_of
from godwit.core.clock import ManualClock
from godwit.core.errors import InvalidSetting, PartialPublish, QueueFull
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.projection import Address, CopyState, Projection
from godwit.core.journal.shards import SPAN, Position
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message
from godwit.core.names import new_message_id
from godwit.core.queues import FlowControl, GroupSpec, QueueSpec
from tests.conformance.harness import LONG, G, Q
from tests.servers.redis_cluster import fresh_cluster, shared_cluster
from tests.waiting import eventually

pytestmark = pytest.mark.xdist_group("redis-cluster")

SIX = QueueSpec(name=Q, partitions=6)
ORDERED = GroupSpec(name=G, message_ordering=True)


@pytest.fixture
async def broker() -> AsyncIterator[RedisBroker]:
    async with RedisBroker(fresh_cluster().url) as broker:
        yield broker


def message(id: str, key: str | None = None, **more: object) -> Envelope:
    return seal(Message(id=id, queue=Q, ordering_key=key, **more))  # type: ignore[arg-type]


async def pull(broker: RedisBroker, limit: int = 100, **options: object) -> list[Delivery]:
    return await broker.pull(Q, G, worker="w", limit=limit, lease=LONG, **options)  # type: ignore[arg-type]


async def drain(broker: RedisBroker) -> list[Delivery]:
    found: list[Delivery] = []
    while deliveries := await pull(broker):
        assert await broker.settle([Ack(one.ack_id) for one in deliveries]) == []
        found += deliveries
    return found


def partition(delivery: Delivery) -> int:
    return int(delivery.ack_id.split("#")[1])


# Where messages go


def test_growing_moves_keys_to_new_partitions_only() -> None:
    names = [f"key{number}" for number in range(3_000)]
    for before, after in ((1, 2), (2, 3), (3, 6), (6, 7)):
        moved = [name for name in names if partition_of(name, before) != partition_of(name, after)]
        assert all(partition_of(name, after) >= before for name in moved)
        assert abs(len(moved) / len(names) - (after - before) / after) < 0.04
    shares = Counter(partition_of(name, 6) for name in names)
    assert min(shares.values()) > 400


def test_a_key_is_looked_for_where_it_was_and_published_where_it_belongs() -> None:
    spec = LaidMessages(name=Q, partitions=6, older=(1, 3))
    for key in map(str, range(200)):
        path = path_of(key, spec)
        assert path == tuple(dict.fromkeys((0, partition_of(key, 3), partition_of(key, 6))))
        assert list(path) == sorted(path)


def test_messages_made_together_go_together_and_all_partitions_get_as_many() -> None:
    spec, shares, paths = LaidMessages(name=Q, partitions=6), Counter[int](), 0
    for _ in range(5_000):  # some 3,000 families: by chance alone their shares differ by a few in a hundred
        ids = [new_message_id() for _ in range(20)]
        parts = by_path([Envelope(one, Q, b"null", 4, 0) for one in ids], range(20), spec)
        paths += len(parts)
        shares.update({path[0]: len(indexes) for path, indexes in parts.items()})
    assert paths < 3 * 5_000, "a call of 20 is not torn into six"
    assert min(shares.values()) / max(shares.values()) > 0.7
    keyed = by_path([message(new_message_id(), f"k{number}") for number in range(60)], range(60), spec)
    assert len(keyed) == 6, "a key decides, where there is one"


async def test_six_partitions_use_all_masters(broker: RedisBroker) -> None:
    await broker.declare(SIX)
    await broker.publish([message(f"m{number}") for number in range(300)])
    cluster = shared_cluster()
    used = [server for server in cluster.masters if any(":l1:default" in key for key in cluster.keys_of(server))]
    assert len(used) == 3
    assert len({slot_of(keys.part(Q, "meta", number)) for number in range(6)}) == 6


async def test_queues_of_one_partition_are_on_different_masters(broker: RedisBroker) -> None:
    names = [f"queue{number}" for number in range(6)]
    for name in names:
        await broker.declare(QueueSpec(name=name))
        await broker.publish([seal(Message(queue=name))])
    cluster = shared_cluster()
    homes = {cluster.server_of(slot_of(keys.inbox(name))).port for name in names}
    assert len(homes) >= 2
    assert [stats.published for stats in await broker.stats()] == [1] * 6


# What holds per partition


async def test_messages_of_a_key_stay_in_order_and_partitions_are_drained_fairly(broker: RedisBroker) -> None:
    await broker.declare(SIX, [ORDERED])
    await broker.publish([message(f"{number}", f"key{number % 400}") for number in range(800)])
    first = [one for _ in range(6) for one in await pull(broker, 6)]
    assert Counter(map(partition, first)) == dict.fromkeys(range(6), 6)
    assert await broker.settle([HandBack(one.ack_id) for one in first]) == []
    found = await drain(broker)
    by_key = defaultdict[str | None, list[int]](list)
    for one in found:
        by_key[one.envelope.ordering_key].append(int(one.message_id))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert len(found) == 800
    assert all(one.publish_seq // SPAN == partition(one) for one in found)


async def test_small_pulls_reach_every_partition_in_turn(broker: RedisBroker) -> None:
    await broker.declare(SIX)
    await broker.publish([message(f"m{number}") for number in range(120)])
    seen = [partition((await pull(broker, 1))[0]) for _ in range(12)]
    assert Counter(seen) == dict.fromkeys(range(6), 2)


async def test_a_limit_of_bytes_holds_over_all_partitions(broker: RedisBroker) -> None:
    await broker.declare(SIX)
    envelopes = [message(f"m{number:02}", payload="x" * 100) for number in range(60)]
    await broker.publish(envelopes)
    found = await pull(broker, 50, max_bytes=3 * envelopes[0].size)
    assert 0 < sum(one.envelope.size for one in found) <= 3 * envelopes[0].size


async def test_ids_are_recognised_and_settled_wherever_they_are(broker: RedisBroker) -> None:
    await broker.declare(SIX)
    envelopes = [message(f"m{number}") for number in range(50)]
    assert all(receipt.fresh for receipt in await broker.publish(envelopes))
    assert not any(receipt.fresh for receipt in await broker.publish(envelopes))
    found = await pull(broker)
    assert await broker.extend([one.ack_id for one in found], LONG) == []
    assert await asyncio.to_thread(broker.extend_now, [one.ack_id for one in found], LONG) == []
    wrong = [f"{Q}#6#{G}#x:y", f"{Q}#007#{G}#x:y", f"{Q}#999#{G}#x:y"]
    assert await broker.settle([Ack(one) for one in wrong]) == wrong  # type: ignore[arg-type]
    assert await broker.settle([Nack(one.ack_id) for one in found]) == []
    (stats,) = await broker.stats()
    assert (stats.published, stats.duplicates, stats.groups[0].ready) == (50, 50, 50)
    assert await broker.cancel(Q, "m7")
    assert not await broker.cancel(Q, "m7")
    assert await broker.purge(Q) == 49


async def test_each_partition_has_its_share_of_the_limits(broker: RedisBroker) -> None:
    await broker.declare(QueueSpec(name=Q, partitions=6, max_size=12))
    by_partition = defaultdict[int, list[Envelope]](list)
    for number in range(100):
        by_partition[partition_of(f"m{number}", 6)].append(message(f"m{number}"))
    with pytest.raises(QueueFull, match="'default'"):
        await broker.publish(by_partition[1][:3])
    with pytest.raises(PartialPublish) as caught:
        await broker.publish([*by_partition[2][:2], *by_partition[1][:3], *by_partition[4][:2]])
    named = tuple(one.id for one in by_partition[2][:2])
    assert caught.value.accepted == named, "callers go on after the last one named: nothing beyond a gap counts"
    with pytest.raises(QueueFull):
        await broker.publish([*by_partition[1][:3], *by_partition[5][:2]])
    for envelopes in by_partition.values():
        await broker.publish(envelopes[:2])
    with pytest.raises(QueueFull):
        await broker.publish([by_partition[3][5]])
    (stats,) = await broker.stats()
    assert (stats.groups[0].depth, stats.groups[0].full) == (12, True)


async def test_flow_control_counts_over_all_partitions(broker: RedisBroker) -> None:
    group = GroupSpec(name=G, flow_control=FlowControl(max_messages=13))
    await broker.declare(SIX, [group])
    await broker.publish([message(f"m{number}") for number in range(100)])
    assert 6 <= len(await pull(broker)) <= 13
    assert await pull(broker) == []


@pytest.mark.parametrize(
    ("spec", "group"),
    [
        (QueueSpec(name=Q, partitions=5), GroupSpec(name=G)),
        (QueueSpec(name=Q, partitions=8), GroupSpec(name=G, flow_control=FlowControl(max_messages=7))),
    ],
)
async def test_a_queue_does_not_shrink_and_leaves_no_partition_without_a_share(
    broker: RedisBroker, spec: QueueSpec, group: GroupSpec
) -> None:
    await broker.declare(SIX)
    with pytest.raises(InvalidSetting):
        await broker.declare(spec, [group])
    assert (await broker.stats())[0].name == Q


async def test_every_partition_has_a_journal_that_tells_its_state(broker: RedisBroker) -> None:
    await broker.declare(SIX, [ORDERED])
    await broker.publish([message(f"m{number}", f"k{number % 9}") for number in range(90)])
    found = await pull(broker)
    await broker.settle([Ack(one.ack_id) for one in found[:3]] + [Nack(one.ack_id) for one in found[3:5]])
    await broker.purge(Q)
    await broker.publish([message(f"n{number}", f"k{number % 9}") for number in range(20)])
    projection = Projection()
    copies: dict[Address, CopyState] = {}
    shards = await broker.journal.shards()
    assert sorted(shards) == [f"{Q}#{number}" for number in range(6)]
    for shard in shards:
        for chunk in await broker.journal.read(shard):
            for row in rows_of(decode_chunk(chunk), shard):
                projection.apply(row)
        snapshot = await broker.journal.snapshot(shard)
        assert snapshot.position == Position(shards[shard].epoch, shards[shard].last_seq)
        copies |= {copy.address: copy for copy in snapshot.copies}
    assert projection.copies == copies
    await broker.journal.commit("reader", f"{Q}#4", Position(shards[f"{Q}#4"].epoch, 2))
    assert list(await broker.journal.committed("reader")) == [f"{Q}#4"]
    await broker.journal.forget("reader")
    assert await broker.journal.committed("reader") == {}


async def test_dead_letters_of_all_partitions_are_listed_replayed_and_discarded(broker: RedisBroker) -> None:
    await broker.declare(SIX)
    await broker.publish([message(f"m{number}") for number in range(40)])
    await broker.settle([GiveUp(one.ack_id, FailureKind.PERMANENT) for one in await pull(broker)])
    pages, after = [], None
    while page := await broker.dead_letters.page(Q, after=after, limit=7):
        pages += page
        after = page[-1].id
    assert sorted(letter.envelope.id for letter in pages) == sorted(f"m{number}" for number in range(40))
    ids = [letter.id for letter in pages]
    assert await broker.dead_letters.discard(ids[:15]) == []
    assert await broker.dead_letters.replay(ids) == ids[:15]
    assert len(await drain(broker)) == 25


async def test_letters_feed_a_dead_letter_queue_of_partitions(broker: RedisBroker) -> None:
    await broker.declare(QueueSpec(name="dlq", partitions=3))
    await broker.declare(QueueSpec(name=Q, partitions=2, dead_letter_queue="dlq"))
    await broker.publish([message(f"m{number}") for number in range(30)])
    await broker.settle([GiveUp(one.ack_id, FailureKind.PERMANENT) for one in await pull(broker)])
    await broker.maintain()
    found = await broker.pull("dlq", G, worker="w", limit=50, lease=LONG)
    assert len({one.message_id for one in found}) == 30
    assert len({partition(one) for one in found}) == 3


async def test_waiting_pulls_hear_of_every_partition(broker: RedisBroker) -> None:
    await broker.declare(SIX)
    for number in range(12):
        waiting = asyncio.create_task(pull(broker, 1, wait=timedelta(seconds=20)))
        await eventually(lambda: any(spot.waited_for for spot in broker._listeners._spots.values()))  # type: ignore[union-attr]
        await broker.publish([message(f"m{number}")])
        (found,) = await waiting
        assert found.message_id == f"m{number}"


async def test_a_publish_that_is_cancelled_gives_its_connections_back(broker: RedisBroker) -> None:
    await broker.declare(SIX)
    await broker.publish([message(f"first{number}") for number in range(20)])
    for turns in range(12):
        publishing = asyncio.create_task(broker.publish([message(f"{turns}-{number}") for number in range(20)]))
        for _ in range(turns % 4):
            await asyncio.sleep(0)
        publishing.cancel()
        await asyncio.wait([publishing])
    pools = broker._servers._pools.values()
    await eventually(lambda: not any(pool._busy for pool in pools))
    assert max(pool.open_connections for pool in pools) <= 5
    receipts = await broker.publish([message(f"last{number}") for number in range(20)])
    assert all(receipt.fresh for receipt in receipts)


async def test_the_inbox_fills_all_partitions(broker: RedisBroker) -> None:
    for window in (timedelta(minutes=10), timedelta(0)):
        await broker.declare(QueueSpec(name=Q, partitions=6, dedup_window=window))
        await broker.publish([])
        with shared_cluster().server_of(slot_of(Q)).client() as client:
            for number in range(40):
                client.xadd(Q, {"payload": f'{{"n": {number}}}', "ordering_key": f"k{number % 7}"})
            client.xadd(Q, {"nonsense": "x"})
        found = await drain(broker)
        await broker.maintain()
        found += await drain(broker)
        assert len(found) == 40
        assert len({partition(one) for one in found}) > 2
        assert [letter.envelope.type for letter in await broker.dead_letters.page(Q)] == ["godwit.inbox.spoiled"]
        await broker.remove(Q)


# Declaring and removing


async def test_a_removed_queue_leaves_nothing_for_the_next_of_its_name(broker: RedisBroker) -> None:
    await broker.declare(SIX, [ORDERED])
    await broker.publish([message(f"m{number}") for number in range(60)])
    await broker.remove(Q)
    assert await broker.stats() == []
    await broker.declare(SIX)
    assert await pull(broker) == []
    assert all(receipt.fresh for receipt in await broker.publish([message(f"m{number}") for number in range(60)]))


async def test_a_group_comes_and_goes_in_all_partitions(broker: RedisBroker) -> None:
    await broker.declare(SIX)
    await broker.declare(SIX, [GroupSpec(name="second")])
    await broker.publish([message(f"m{number}") for number in range(30)])
    found = await broker.pull(Q, "second", worker="w", limit=50, lease=LONG)
    assert len(found) == 30
    await broker.remove(Q, "second")
    await broker.publish([message(f"n{number}") for number in range(30)])
    assert len(await drain(broker)) == 60


async def test_partitions_left_behind_by_a_death_are_brought_up_by_whoever_finds_them(broker: RedisBroker) -> None:
    await broker.declare(SIX)
    await broker.publish([message(f"m{number}") for number in range(30)])
    cluster = shared_cluster()
    for number, change in ((2, "old"), (3, "missing"), (4, "another")):
        meta = keys.part(Q, "meta", number)
        with cluster.server_of(slot_of(meta)).client() as client:
            if change == "old":
                client.hset(meta, "v", 0)
            elif change == "missing":
                client.hdel(meta, "spec", "groups")
                client.hincrby(meta, "v", 1)
            else:
                client.hset(meta, "v", 0)
                client.hset(meta, "spec", client.hget(meta, "spec").replace(b'"born":"', b'"born":"x'))
    there = [one for one in (f"m{number}" for number in range(30)) if partition_of(one, 6) != 4]
    await broker.publish([message(f"n{number}") for number in range(30)])
    found = {one.message_id for one in await drain(broker)}
    assert found == {*there, *(f"n{number}" for number in range(30))}, "what an earlier queue left is gone"


# Growing


async def test_growing_keeps_ids_and_keys_where_they_are_until_they_are_done(broker: RedisBroker) -> None:
    clock = ManualClock()
    async with RedisBroker(fresh_cluster().url, now=lambda: str(clock.now_ms())) as timed:
        await timed.declare(QueueSpec(name=Q, partitions=1), [ORDERED])
        await timed.publish([message(f"a{number}", f"k{number}") for number in range(40)])
        await timed.publish([message(f"plain{number}") for number in range(40)])
        await timed.declare(SIX, [ORDERED])
        again = [message(f"a{number}", f"k{number}") for number in range(40)]
        again += [message(f"plain{number}") for number in range(40)]
        assert not any(receipt.fresh for receipt in await timed.publish(again))
        await timed.publish([message(f"b{number}", f"k{number}") for number in range(40)])
        async with RedisBroker(shared_cluster().url, now=lambda: str(clock.now_ms())) as other:
            found = await drain(other)
            assert {partition(one) for one in found} == {0}, "every key was held in the old partition"
            assert len(found) == 120
        await timed.publish([message(f"c{number}", f"k{number}") for number in range(40)])
        homes = {one.envelope.ordering_key: partition(one) for one in await pull(timed)}
        assert homes == {f"k{number}": partition_of(f"k{number}", 6) for number in range(40)}
        await timed.maintain()
        assert (await timed._catalog.ask(Q)).spec.older == (1,), "ids are still remembered"
        clock.advance(timedelta(minutes=11))
        await timed.maintain()
        assert (await timed._catalog.ask(Q)).spec.older == ()


async def test_a_letter_of_before_the_growth_is_replayed_where_its_key_is_now(broker: RedisBroker) -> None:
    await broker.declare(QueueSpec(name=Q), [ORDERED])
    await broker.publish([message(f"a{number}", f"k{number}") for number in range(20)])
    await broker.settle([GiveUp(one.ack_id, FailureKind.PERMANENT) for one in await pull(broker)])
    await broker.declare(SIX, [ORDERED])
    await broker.publish([message(f"b{number}", f"k{number}") for number in range(20)])
    letters = [letter.id for letter in await broker.dead_letters.page(Q)]
    assert await broker.dead_letters.replay(letters) == []
    first = await pull(broker)
    assert sorted(one.message_id for one in first) == sorted(f"b{number}" for number in range(20))
    await broker.settle([Ack(one.ack_id) for one in first])
    assert sorted(one.message_id for one in await drain(broker)) == sorted(f"a{number}" for number in range(20))
    assert await broker.dead_letters.page(Q) == []


async def test_a_queue_grows_under_load_without_loss_and_with_every_key_in_order() -> None:
    """Publishers and workers of several clients go on while the queue grows from 1 to 3 to 6 partitions."""
    url = fresh_cluster().url
    random = Random(8)
    done: dict[str, list[int]] = defaultdict(list)
    flying: set[str] = set()
    published = Counter[str]()
    stop = asyncio.Event()

    async def publishing(name: str) -> None:
        async with RedisBroker(url) as broker:
            while not stop.is_set():
                batch = []
                for _ in range(random.randrange(1, 30)):
                    key = f"{name}:{random.randrange(25)}"
                    batch.append(message(f"{key}:{published[key]}", key))
                    published[key] += 1
                await broker.publish(batch)

    async def working() -> None:
        async with RedisBroker(url) as broker:
            while not stop.is_set() or sum(map(len, done.values())) < published.total():
                found = await pull(broker, random.randrange(1, 40), wait=timedelta(milliseconds=50))
                for one in found:
                    key = str(one.envelope.ordering_key)
                    assert key not in flying, "two messages of a key are in flight"
                    flying.add(key)
                await asyncio.sleep(random.random() / 100)
                back = [one for one in found if random.random() < 0.1]
                for one in found:
                    flying.discard(str(one.envelope.ordering_key))
                    if one not in back:
                        done[str(one.envelope.ordering_key)].append(int(one.message_id.rpartition(":")[2]))
                settlements = [HandBack(one.ack_id) if one in back else Ack(one.ack_id) for one in found]
                assert await broker.settle(settlements) == []

    async with RedisBroker(url) as broker:
        await broker.declare(QueueSpec(name=Q), [ORDERED])
        async with asyncio.TaskGroup() as children:
            for name in "ab":
                children.create_task(publishing(name))
            for _ in range(3):
                children.create_task(working())
            for count in (3, 6):
                before = published.total()
                await eventually(lambda before=before: published.total() > before + 500)
                await broker.declare(QueueSpec(name=Q, partitions=count), [ORDERED])
            before = published.total()
            await eventually(lambda before=before: published.total() > before + 500)
            stop.set()
    assert {key: len(numbers) for key, numbers in done.items()} == published
    assert all(numbers == sorted(numbers) for numbers in done.values())
