"""A server that goes away, comes back, forgets its scripts or has no memory left."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.contract import Ack, HandBack
from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.listen import listeners
from godwit.core.clock import SYSTEM_CLOCK, utc_now
from godwit.core.errors import BrokerUnavailable, JournalLost, QueueFull, StorageFull
from godwit.core.journal.chunks import decode_chunk
from godwit.core.journal.shards import Position
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message
from godwit.core.names import AckId, GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.core.shared_keys import MAINTENANCE
from godwit.manager import MessageQueueManager
from godwit.runtime.leader import LeaderClaim
from godwit.store.urls import connect
from tests.servers.redis import fresh, redis_server
from tests.waiting import eventually, real_time, soon

Q, G = "orders", "default"
LEASE = timedelta(seconds=15)
SHORT = timedelta(milliseconds=600)


def message(name: str, size: int = 10) -> Envelope:
    return seal(Message(id=MessageId(name), queue=Q, payload="x" * size))


async def take(broker: RedisBroker, limit: int = 100, *, wait: timedelta = timedelta(0)) -> list[str]:
    """Pull, ack, and say which messages came."""
    found = await broker.pull(Q, G, worker="w", limit=limit, lease=LEASE, wait=wait)
    assert await broker.settle([Ack(delivery.ack_id, run_ms=1) for delivery in found]) == []
    return [delivery.message_id for delivery in found]


async def events(broker: RedisBroker) -> list[str]:
    chunks = await broker.journal.read(f"{Q}#0", limit=10_000)
    return [str(chunk.event) for chunk in map(decode_chunk, chunks) for _ in chunk.rows]


async def test_scripts_are_loaded_again_after_the_server_forgot_them() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=Q))
        for n in range(3):
            await broker.publish([message(f"m{n}")])
            with server.client() as client:
                client.script_flush()
            (delivery,) = await broker.pull(Q, G, worker="w", limit=1, lease=LEASE)
            with server.client() as client:
                client.script_flush()
            assert await asyncio.to_thread(broker.extend_now, [delivery.ack_id], LEASE) == []
            assert await broker.settle([Ack(delivery.ack_id)]) == []


async def test_everything_confirmed_survives_a_kill_under_load_and_work_goes_on() -> None:
    with redis_server(appendfsync="always") as server:
        async with RedisBroker(server.url) as publisher, RedisBroker(server.url) as worker:
            await publisher.declare(QueueSpec(name=Q))
            sent, got = set[str](), list[str]()

            async def publish() -> None:
                for n in range(300):
                    names = [f"m{n}-{k}" for k in range(5)]
                    await publisher.publish([message(name) for name in names])
                    sent.update(names)

            async def consume() -> None:
                while len(set(got)) < 1_500:
                    found = await worker.pull(Q, G, worker="w", limit=100, lease=LEASE, wait=timedelta(seconds=1))
                    # An ack whose reply was lost with the server is sent again and refused, though it counted.
                    await worker.settle([Ack(delivery.ack_id, run_ms=1) for delivery in found])
                    got.extend(delivery.message_id for delivery in found)

            working = asyncio.gather(publish(), consume())
            for _ in range(2):
                await eventually(lambda: len(got) > 100, what="work under way")
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.restart)
            await asyncio.wait_for(working, 60)
            assert set(got) == sent
            assert (await worker.stats())[0].groups[0].depth == 0
            chunks = map(decode_chunk, await worker.journal.read(f"{Q}#0", limit=20_000))
            acked = [row[0] for chunk in chunks if chunk.event == "acked" for row in chunk.rows]
            assert sorted(acked) == sorted(sent), "every message was done once"


async def test_a_waiting_pull_gets_what_is_published_after_a_restart() -> None:
    with redis_server(appendfsync="always") as server:
        async with RedisBroker(server.url) as worker, RedisBroker(server.url) as publisher:
            await publisher.declare(QueueSpec(name=Q))
            pull = asyncio.create_task(take(worker, wait=timedelta(seconds=30)))
            await real_time(timedelta(milliseconds=100))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.restart)
            await publisher.publish([message("a")])
            assert await soon(pull, 8) == ["a"]


async def test_a_restart_of_the_server_is_nobodys_crash() -> None:
    with redis_server(appendfsync="always") as server:
        async with RedisBroker(server.url) as broker:
            await broker.declare(QueueSpec(name=Q), [GroupSpec(name=G, max_crashes=1)])
            await broker.publish([message("a")])
            (held,) = await broker.pull(Q, G, worker="w", limit=1, lease=timedelta(seconds=60))
            for _ in range(5):
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.restart)
                await broker.maintain()
            assert await broker.settle([Ack(held.ack_id)]) == []
            assert (await events(broker)).count("lease_moved") == 5
            assert await broker.dead_letters.page(Q) == []


async def test_a_lease_that_ran_out_while_the_server_was_away_is_moved_not_taken_back() -> None:
    with redis_server(appendfsync="always") as server:
        async with RedisBroker(server.url) as broker:
            await broker.declare(QueueSpec(name=Q), [GroupSpec(name=G, max_crashes=1)])
            await broker.publish([message("a")])
            (held,) = await broker.pull(Q, G, worker="w", limit=1, lease=SHORT)
            await asyncio.to_thread(server.kill)
            await real_time(SHORT)
            await asyncio.to_thread(server.restart)
            assert await broker.pull(Q, G, worker="w2", limit=1, lease=SHORT) == []
            assert await broker.settle([Ack(held.ack_id)]) == []


async def test_what_a_pull_leased_whose_reply_was_lost_is_handed_back_at_once() -> None:
    server = fresh()
    async with RedisBroker(server.url, max_connections=1) as broker:
        await broker.declare(QueueSpec(name=Q))
        assert await take(broker) == []  # the server knows the script from here on
        await broker.publish([message("a"), message("b")])
        link = await broker._servers.pool.acquire()
        link._transport.write(b"CLIENT REPLY OFF\r\n")  # type: ignore[union-attr]
        broker._servers.pool.release(link)
        pull = asyncio.create_task(broker.pull(Q, G, worker="w", limit=1, lease=LEASE))
        with server.client() as client:
            await eventually(lambda: client.zcard(keys.block(Q, G)[10]) == 1, what="the server leased it")
        link._transport.abort()  # type: ignore[union-attr]
        (delivery,) = await soon(pull, 10)
        assert (delivery.message_id, delivery.attempt) == ("a", 1)
        stats = (await broker.stats())[0].groups[0]
        assert (stats.ready, stats.leased) == (1, 1)


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave it to markers alone to wake those who wait."""
    monkeypatch.setattr(listeners, "LOOK_SECONDS", 3_600.0)


@pytest.mark.usefixtures("no_looks")
@pytest.mark.parametrize("several", [1, 2])
async def test_a_publish_wakes_a_waiting_pull_long_before_the_next_look(several: int) -> None:
    server = fresh()
    async with RedisBroker(server.url) as worker, RedisBroker(server.url) as publisher:
        await publisher.declare(QueueSpec(name=Q))
        for n in range(20):
            pull = asyncio.create_task(take(worker, wait=timedelta(seconds=30)))
            if n % 2:
                await real_time(timedelta(milliseconds=20))
            names = [f"m{n}-{one}" for one in range(several)]
            await publisher.publish([message(name) for name in names])
            assert await soon(pull, 5) == names


@pytest.mark.usefixtures("no_looks")
async def test_what_a_pull_leaves_behind_wakes_the_next_long_before_its_look() -> None:
    server = fresh()
    async with RedisBroker(server.url) as one, RedisBroker(server.url) as two, RedisBroker(server.url) as publisher:
        await publisher.declare(QueueSpec(name=Q))
        pulls = [asyncio.create_task(take(one, 1, wait=timedelta(seconds=30))) for _ in range(3)]
        pulls += [asyncio.create_task(take(two, 1, wait=timedelta(seconds=30))) for _ in range(3)]
        await real_time(timedelta(milliseconds=100))
        await publisher.publish([message(f"m{n}") for n in range(6)])
        got = await soon(asyncio.gather(*pulls), 8)
        assert sorted(name for (name,) in got) == [f"m{n}" for n in range(6)]


async def test_a_fast_ack_of_a_lease_that_is_gone_changes_nothing() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=Q))
        await broker.publish([message("a"), message("b")])
        one, two = await broker.pull(Q, G, worker="w", limit=2, lease=LEASE)
        async with RedisBroker(server.url) as other:
            assert await other.settle([HandBack(one.ack_id)]) == []
        acks = [Ack(one.ack_id, run_ms=1), Ack(two.ack_id, run_ms=1)]
        assert await broker.settle(acks) == [one.ack_id]
        assert await broker.settle(acks) == [one.ack_id, two.ack_id]
        stats = (await broker.stats())[0].groups[0]
        assert (stats.ready, stats.leased, stats.bytes, stats.leased_bytes) == (1, 0, message("a").size, 0)
        assert (await events(broker)).count("acked") == 1
        assert await take(broker) == ["a"]


async def test_a_late_ack_of_a_second_delivery_does_not_settle_the_third() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=Q))
        await broker.publish([message("a")])
        held = list[AckId]()
        for _ in range(3):
            (delivery,) = await broker.pull(Q, G, worker="w", limit=1, lease=LEASE)
            held.append(delivery.ack_id)
            if len(held) < 3:
                assert await broker.settle([HandBack(delivery.ack_id)]) == []
        for stale in held[:2]:
            assert await broker.settle([Ack(stale)]) == [stale]
            assert await broker.settle([HandBack(stale)]) == [stale]
        assert (await broker.stats())[0].groups[0].leased == 1
        assert await broker.settle([Ack(held[2])]) == []


async def test_a_server_that_stays_away_is_reported_after_the_patience() -> None:
    with redis_server() as server:
        async with RedisBroker(server.url, patience=timedelta(milliseconds=300)) as broker:
            await broker.declare(QueueSpec(name=Q))
            await asyncio.to_thread(server.kill)
            with pytest.raises(BrokerUnavailable):
                await broker.publish([message("a")])
            await asyncio.to_thread(server.restart)
            await broker.declare(QueueSpec(name=Q))
            assert [receipt.fresh for receipt in await broker.publish([message("b")])] == [True]


async def test_a_full_server_refuses_publishes_drains_and_takes_publishes_again() -> None:
    with redis_server(maxmemory="8mb", lines=("maxmemory-policy noeviction",)) as server:
        async with RedisBroker(server.url) as broker:
            await broker.declare(QueueSpec(name=Q, dedup_window=timedelta(0)))
            accepted = list[str]()

            async def fill() -> None:
                for n in range(10_000):
                    await broker.publish([message(f"m{n}", 4_000)])
                    accepted.append(f"m{n}")

            with pytest.raises(QueueFull, match="maxmemory"):
                await fill()
            assert len(accepted) > 100
            assert (await broker.stats())[0].groups[0].depth == len(accepted)
            # What brings a full server down again works, what does not is refused by a known error.
            assert await LeaderClaim(broker.shared, MAINTENANCE, "worker").hold()
            with pytest.raises(StorageFull):
                await broker.shared.put("other", b"x", expected=None)
            with pytest.raises(StorageFull):
                await broker.declare(QueueSpec(name=QueueName("another")))
            (first,) = await broker.pull(Q, G, worker="w", limit=1, lease=LEASE)
            assert await broker.extend([first.ack_id], LEASE) == []
            assert await broker.settle([Ack(first.ack_id)]) == []
            await broker.maintain()
            drained = [first.message_id]
            while found := await take(broker):
                drained += found
            assert drained == accepted
            assert [receipt.fresh for receipt in await broker.publish([message("again", 4_000)])] == [True]


async def test_what_frees_memory_works_above_maxmemory() -> None:
    short, shard = timedelta(milliseconds=1), f"{Q}#0"
    with redis_server(lines=("maxmemory-policy noeviction",)) as server, server.client() as client:
        async with RedisBroker(server.url) as broker:
            await broker.declare(QueueSpec(name="gone"))
            await broker.declare(QueueSpec(name=Q, journal_keep=short))
            before = (await broker.journal.shards())[shard]
            await broker.journal.commit("reader", shard, Position(before.epoch, 0))
            await broker.publish([message(f"m{n}") for n in range(5)])
            await take(broker)
            await broker.maintain()
            client.config_set("maxmemory", 1)
            assert (await broker.journal.shards())[shard].first_seq == 1, "what a reader has not read is kept"
            await broker.remove("gone")
            ends = (await broker.journal.shards())[shard]
            await broker.journal.commit("reader", shard, Position(ends.epoch, ends.last_seq))
            await real_time(short)
            await broker.maintain()
            ends = (await broker.journal.shards())[shard]
            assert ends.first_seq == ends.last_seq + 1, "what the reader has read was not trimmed"
            with pytest.raises(QueueFull):
                await broker.publish([message("refused")])
            with pytest.raises(JournalLost):
                await broker.journal.commit("reader", shard, Position("another", 0))


async def test_a_moment_above_maxmemory_ends_neither_recorder_nor_scheduler_nor_outbox(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with redis_server(lines=("maxmemory-policy noeviction",)) as server, server.client() as client:
        broker = RedisBroker(server.url)
        async with MessageQueueManager(broker, store=connect(f"sqlite:///{file}")) as mq:
            await mq.declare(Q)
            assert mq.store is not None
            await mq.store.ping()
            running = [asyncio.create_task(run()) for run in (mq.scheduler.run, mq.store_services.run)]
            due = utc_now() + timedelta(seconds=1)
            scheduled = await mq.schedule_message(Message(queue=Q, payload="due"), due)
            client.config_set("maxmemory", 1)
            with pytest.raises(QueueFull):
                await broker.publish([message("refused")])
            with closing(sqlite3.connect(file, isolation_level=None)) as connection:
                connection.execute("BEGIN")
                put = await mq.outbox(connection).enqueue(Message(queue=Q, payload="from the outbox"))
                connection.execute("COMMIT")
            await real_time(timedelta(seconds=2.5))
            client.config_set("maxmemory", 0)

            async def sent() -> bool:
                (group,) = (await broker.stats())[0].groups
                return group.depth == 2

            await eventually(sent, within=timedelta(seconds=30))
            positions = {shard: ends.last_seq for shard, ends in (await broker.journal.shards()).items()}

            async def recorded() -> bool:
                assert mq.store is not None
                reached = await mq.store.messages.positions()
                return all(shard in reached and reached[shard].seq >= seq for shard, seq in positions.items())

            await eventually(recorded, within=timedelta(seconds=30))
            assert [await mq.status(one) is not None for one in (scheduled, put)] == [True, True]
            assert not any(task.done() for task in running)
            for task in running:
                task.cancel()
            await asyncio.wait(running)


async def test_a_key_of_another_type_in_the_way_is_refused_before_anything_is_written() -> None:
    server = fresh()
    with server.client() as client:
        for key in (Q, keys.block(Q, G)[1], keys.step(Q)[1]):
            client.flushall()
            client.set(key, "mine")
            async with RedisBroker(server.url) as broker:
                with pytest.raises(BrokerUnavailable, match="string"):
                    await broker.declare(QueueSpec(name=Q))
                assert await broker.stats() == []
            assert client.get(key) == b"mine"
            assert not client.exists(keys.part(Q, "meta"))


async def test_a_publish_that_meets_a_key_of_another_type_changes_nothing() -> None:
    server = fresh()
    now = str(SYSTEM_CLOCK.now_ms())  # it is published again in the same millisecond
    async with RedisBroker(server.url, now=lambda: now) as broker:
        await broker.declare(QueueSpec(name=Q), [GroupSpec(name="a"), GroupSpec(name="b")])
        before = await events(broker)
        with server.client() as client:
            client.set(keys.block(Q, "b")[2], "mine")
            with pytest.raises(BrokerUnavailable, match="WRONGTYPE"):
                await broker.publish([message("x")])
            client.delete(keys.block(Q, "b")[2])
        assert await events(broker) == before
        assert [receipt.fresh for receipt in await broker.publish([message("x")])] == [True]
        for group in ("a", "b"):
            held = await broker.pull(Q, GroupName(group), worker="w", limit=10, lease=LEASE)
            assert [delivery.envelope.id for delivery in held] == ["x"]
