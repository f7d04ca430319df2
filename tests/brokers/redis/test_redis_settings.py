"""The variables of the specification: the same program on memory, SQLite or Redis, by REDIS_URL alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from godwit import Message, MessageQueueManager
from godwit.brokers.redis import RedisBroker
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.failures.failure import FailureKind
from godwit.core.queues import QueueSpec
from tests.servers.redis import fresh


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Give an environment without any of our variables, in an empty folder."""
    for name in list(os.environ):
        if name.startswith(("GODWIT_", "REDIS_", "RABBITMQ_", "QUEUE_", "CONSUMER_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return monkeypatch


async def one_message() -> str:
    """Publish and work off one message with whatever broker the environment names; return the broker's class."""
    manager = MessageQueueManager.from_url()
    async with manager:
        await manager.broker.declare(QueueSpec(name="telemetry-stream"))
        await manager.enqueue(Message(queue="telemetry-stream", payload={"n": 1}))
        (delivery,) = await manager.dequeue("telemetry-stream", "default", limit=10)
        assert delivery.open().payload == {"n": 1}
        await manager.acknowledge_message(delivery)
        return type(manager.broker).__name__


async def test_redis_url_alone_chooses_redis(environment: pytest.MonkeyPatch) -> None:
    assert await one_message() == SqliteBroker.__name__
    environment.setenv("REDIS_URL", f"127.0.0.1:{fresh().port}")  # as in the specification: without a scheme
    assert await one_message() == RedisBroker.__name__


async def test_host_port_and_database_choose_redis_too(environment: pytest.MonkeyPatch) -> None:
    server = fresh()
    environment.setenv("REDIS_HOST", "127.0.0.1")
    environment.setenv("REDIS_PORT", str(server.port))
    environment.setenv("REDIS_DB", "3")
    assert await one_message() == RedisBroker.__name__
    with server.client() as client, server.client(db=3) as third:
        assert client.dbsize() == 0
        assert third.dbsize() > 0


async def test_max_connections_reaches_the_pool(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("REDIS_URL", fresh().url)
    environment.setenv("REDIS_MAX_CONNECTIONS", "3")
    async with MessageQueueManager.from_url() as manager:
        assert isinstance(manager.broker, RedisBroker)
        assert manager.broker.max_connections == 3


async def test_redis_stream_and_group_are_declared_and_take_plain_xadds(environment: pytest.MonkeyPatch) -> None:
    server = fresh()
    environment.setenv("REDIS_URL", server.url)
    environment.setenv("REDIS_STREAM", "telemetry-stream")
    environment.setenv("REDIS_GROUP", "collectors")
    async with MessageQueueManager.from_url() as manager:
        with server.client() as client:
            client.xadd("telemetry-stream", {"payload": '{"n": 2}'})
        (delivery,) = await manager.dequeue("telemetry-stream", "collectors", limit=10)
        assert delivery.open().payload == {"n": 2}
        await manager.acknowledge_message(delivery)


async def test_visibility_timeout_is_the_lease_and_max_retries_the_number_of_failures(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("REDIS_URL", fresh().url)
    environment.setenv("VISIBILITY_TIMEOUT", "4000")
    environment.setenv("MAX_RETRIES", "1")
    async with MessageQueueManager.from_url() as manager:
        await manager.broker.declare(QueueSpec(name="telemetry-stream"))
        await manager.enqueue(Message(queue="telemetry-stream"))
        (delivery,) = await manager.dequeue("telemetry-stream", "default", limit=1)
        assert delivery.lease_until_ms - delivery.delivered_at_ms == 4_000
        await manager.reject_message(delivery, reason="no", requeue=True)
        (letter,) = await manager.broker.dead_letters.page("telemetry-stream")
        assert (letter.failures, letter.kind) == (1, FailureKind.TRANSIENT)
