"""`min_replicas`: a publish returns when replicas have it, in memory or on disk, and says so when they do not."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path

import pytest

from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.client import script_runner
from godwit.brokers.urls import connect
from godwit.core.errors import InvalidSetting, NotReplicated, PartialPublish
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.queues import QueueSpec
from godwit.manager import MessageQueueManager
from tests.conformance.harness import Q
from tests.servers.redis import Program, RedisServer, fresh
from tests.servers.redis_cluster import fresh_cluster
from tests.servers.redis_replicas import fresh_pair

CAREFUL = QueueSpec(name=Q, min_replicas=1)
PATIENT_MS = 20_000
"""Long enough for a replica that is there, on any machine."""


def calls(server: RedisServer, command: str) -> int:
    with server.client() as client:
        return int(client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


@pytest.mark.parametrize(
    ("program", "option", "command"),
    [("redis", "", "wait"), ("valkey", "", "waitaof"), ("valkey", "?replicas=memory", "wait")],
)
async def test_a_publish_returns_when_a_replica_has_it(program: Program, option: str, command: str) -> None:
    pair = fresh_pair(program)
    async with RedisBroker(pair.master.url + option) as broker:
        await broker.declare(CAREFUL)
        before = calls(pair.master, command)
        receipts = await broker.publish([seal(Message(queue=Q)) for _ in range(20)])
        assert len(receipts) == 20
        with pair.replica.client() as client:
            assert client.hget("godwit:{orders}:meta", "v") is not None
            assert client.xlen("godwit:{orders}:l1:default") == 20
        assert calls(pair.master, command) > before


async def test_without_a_replica_the_publish_says_what_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_runner, "REPLICAS_MS", 200)
    pair = fresh_pair("redis")
    async with RedisBroker(pair.master.url) as broker:
        await broker.declare(CAREFUL)
        pair.replica.kill()
        envelope = seal(Message(queue=Q, id="m"))
        with pytest.raises(NotReplicated, match="0 of 1 replicas") as caught:
            await broker.publish([envelope])
        assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args
        many = [seal(Message(queue=Q, id=f"n{number}")) for number in range(250)]
        with pytest.raises(NotReplicated):
            await broker.publish(many)
        pair.replica.start()
        monkeypatch.setattr(script_runner, "REPLICAS_MS", PATIENT_MS)
        pair.await_replica()
        (receipt,) = await broker.publish([envelope])
        assert not receipt.fresh, "it was there all the time, and is recognised"
        assert sum(receipt.fresh for receipt in await broker.publish(many)) == 50
        assert (await broker.stats())[0].groups[0].depth == 251


@pytest.mark.parametrize(
    ("program", "option"),
    [("redis", ""), ("valkey", ""), ("valkey", "?replicas=memory")],
    ids=["redis", "disk", "memory"],
)
async def test_a_repetition_is_not_confirmed_before_replicas_have_the_message(
    program: Program, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newer servers wait for what the same connection wrote, so a repetition has to write something."""
    pair = fresh_pair(program)
    url = pair.master.url + option
    async with RedisBroker(url) as first, RedisBroker(url) as second:
        await first.declare(CAREFUL)
        many = [seal(Message(queue=Q, id=f"n{number}")) for number in range(3)]
        os.kill(pair.replica.pid, signal.SIGSTOP)
        try:
            monkeypatch.setattr(script_runner, "REPLICAS_MS", 200)
            for broker, messages in ((first, many), (first, many), (second, many), (second, many[:1])):
                with pytest.raises(NotReplicated):
                    await broker.publish(messages)
        finally:
            os.kill(pair.replica.pid, signal.SIGCONT)


async def test_other_answers_than_success_do_not_wait_for_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not know the newest settings learns them also while no replica is there."""
    monkeypatch.setattr(script_runner, "REPLICAS_MS", 100)
    server = fresh()
    async with RedisBroker(server.url) as first, RedisBroker(server.url) as second:
        await first.declare(CAREFUL)
        with pytest.raises(NotReplicated):
            await first.publish([seal(Message(queue=Q))])
        await second.declare(QueueSpec(name=Q))
        assert (await first.publish([seal(Message(queue=Q))]))[0].fresh


async def test_chunks_confirmed_before_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_runner, "REPLICAS_MS", PATIENT_MS)
    pair = fresh_pair("redis")
    async with RedisBroker(pair.master.url) as broker:
        await broker.declare(CAREFUL)
        many = [seal(Message(queue=Q, id=f"n{number}")) for number in range(201)]
        await broker.publish(many[:1])
        run = broker._publisher._store
        chunks = []

        async def store(*args: object, **options: object) -> object:
            chunks.append(args)
            if len(chunks) > 1:
                monkeypatch.setattr(script_runner, "REPLICAS_MS", 300)
                pair.replica.kill()
            return await run(*args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(broker._publisher, "_store", store)
        with pytest.raises(PartialPublish) as caught:
            await broker.publish(many)
        assert len(caught.value.accepted) == 200


@pytest.mark.parametrize("spec", [CAREFUL, QueueSpec(name=Q, partitions=2)], ids=["min_replicas", "partitions"])
async def test_brokers_of_one_file_or_process_refuse_these_settings(spec: QueueSpec, tmp_path: Path) -> None:
    for url in ("memory://", f"sqlite:///{tmp_path / 'godwit.db'}"):
        async with connect(url) as broker:
            with pytest.raises(InvalidSetting, match="on this broker"):
                await broker.declare(spec)


# For one publish, whatever its queue says


async def test_a_publish_may_ask_for_replicas_that_its_queue_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = fresh_pair("redis")
    async with RedisBroker(pair.master.url) as broker:
        await broker.declare(QueueSpec(name=Q))
        before = calls(pair.master, "wait")
        await broker.publish([seal(Message(queue=Q)) for _ in range(2)])
        assert calls(pair.master, "wait") == before
        for count in (1, 20, 450):
            await broker.publish([seal(Message(queue=Q)) for _ in range(count)], min_replicas=1)
        with pair.replica.client() as client:
            assert client.xlen("godwit:{orders}:l1:default") == 473
        assert calls(pair.master, "wait") >= before + 5
        pair.replica.kill()
        monkeypatch.setattr(script_runner, "REPLICAS_MS", 100)
        with pytest.raises(NotReplicated, match="0 of 1 replicas"):
            await broker.publish([seal(Message(queue=Q))], min_replicas=1)
        await broker.declare(CAREFUL)
        with pytest.raises(NotReplicated):
            await broker.publish([seal(Message(queue=Q))])
        assert (await broker.publish([seal(Message(queue=Q))], min_replicas=0))[0].fresh
        with pytest.raises(InvalidSetting, match="0 or more"):
            await broker.publish([seal(Message(queue=Q))], min_replicas=-1)
        assert (await broker.stats())[0].groups[0].depth == 476


async def test_each_partition_waits_for_its_own_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_runner, "REPLICAS_MS", 100)
    async with RedisBroker(fresh_cluster().url) as broker:
        await broker.declare(QueueSpec(name=Q, partitions=6))
        many = [seal(Message(queue=Q)) for _ in range(20)]
        with pytest.raises(NotReplicated):
            await broker.publish(many, min_replicas=1)
        assert len(await broker.publish(many)) == 20


async def test_an_application_says_so_where_it_publishes(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = fresh_pair("redis")
    async with MessageQueueManager.from_url(pair.master.url) as mq:
        await mq.broker.declare(QueueSpec(name=Q))
        before = calls(pair.master, "wait")
        await mq.enqueue(Message(queue=Q), min_replicas=1)
        await mq.enqueue_many([Message(queue=Q), Message(queue=Q)], min_replicas=1)
        assert calls(pair.master, "wait") >= before + 2
        pair.replica.kill()
        monkeypatch.setattr(script_runner, "REPLICAS_MS", 100)
        with pytest.raises(NotReplicated):
            await mq.enqueue(Message(queue=Q), min_replicas=1)
        await mq.enqueue(Message(queue=Q))


async def test_brokers_without_replicas_refuse_to_wait_for_them(tmp_path: Path) -> None:
    for url in ("memory://", f"sqlite:///{tmp_path / 'godwit.db'}"):
        async with connect(url) as broker:
            await broker.declare(QueueSpec(name=Q))
            with pytest.raises(InvalidSetting, match="on this broker"):
                await broker.publish([seal(Message(queue=Q))], min_replicas=1)
            assert (await broker.stats())[0].groups[0].depth == 0
            await broker.publish([seal(Message(queue=Q))], min_replicas=0)
    with pytest.raises(InvalidSetting, match="on this broker"):
        await connect("amqp://localhost").publish([seal(Message(queue=Q))], min_replicas=1)
