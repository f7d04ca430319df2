"""Connections: what is wrong with an address is said at once; a pool that is bounded and waits."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.client.connection import new_enough, read_info
from godwit.brokers.redis.client.errors import Refused
from godwit.brokers.redis.client.pool import ConnectionPool
from godwit.brokers.redis.url import RedisUrl
from godwit.brokers.urls import connect
from godwit.core.errors import BrokerBusy, BrokerClosed, BrokerUnavailable, InvalidSetting, UnknownScheme
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.queues import QueueSpec
from tests.cancellation import cancelled_everywhere
from tests.servers.processes import free_ports
from tests.servers.redis import RedisServer, fresh, redis_server
from tests.waiting import eventually, real_time, soon

LEASE = timedelta(seconds=15)


async def refused(url: str) -> BrokerUnavailable:
    with pytest.raises(BrokerUnavailable) as caught:
        async with RedisBroker(url):
            pass
    return caught.value


async def test_a_wrong_address_is_refused_at_once_with_the_address() -> None:
    (port,) = free_ports(1)
    error = await refused(f"redis://:secret@127.0.0.1:{port}/0")
    assert f"redis://127.0.0.1:{port}/0 cannot be used" in error.fact
    assert "secret" not in str(error)
    assert "REDIS_URL" in error.remedy


async def test_a_wrong_and_a_missing_password_are_told_from_each_other() -> None:
    with redis_server(password="right") as server:
        address = f"127.0.0.1:{server.port}"
        assert "REDIS_PASSWORD" in (await refused(f"redis://:wrong@{address}")).remedy
        assert "Give the password" in (await refused(f"redis://{address}")).remedy
        async with RedisBroker(server.url) as broker:
            assert await broker.stats() == []


async def test_tls_verifies_the_server() -> None:
    with redis_server(tls=True) as server:
        async with RedisBroker(server.url) as broker:
            await broker.declare(QueueSpec(name="orders"))
            await broker.publish([seal(Message(queue="orders"))])
            (delivery,) = await broker.pull("orders", "default", worker="w", limit=5, lease=LEASE)
            assert await asyncio.to_thread(broker.extend_now, [delivery.ack_id], LEASE) == []
        assert "certificate" in (await refused(f"rediss://127.0.0.1:{server.port}/0")).fact


async def test_a_read_only_replica_is_refused_with_the_remedy() -> None:
    with redis_server() as master, redis_server(lines=(f"replicaof 127.0.0.1 {master.port}",)) as replica:
        async with RedisBroker(replica.url, patience=timedelta(0)) as broker:
            with pytest.raises(BrokerUnavailable, match="Connect to the master"):
                await broker.declare(QueueSpec(name="orders"))


@pytest.mark.parametrize(
    ("version", "enough"),
    [("7.0.15", True), ("6.2.0", True), ("8.4.1", True), ("10.0", True), ("6.0.16", False), ("5.0.3", False),
     ("", False), ("unstable", False)],
)  # fmt: skip
def test_servers_older_than_6_2_are_refused(version: str, enough: bool) -> None:
    assert new_enough(version) == enough
    info = f"# Server\r\nredis_version:{version}\r\nrun_id:abc\r\n"
    if enough:
        assert read_info(info).run_id == "abc"
    else:
        with pytest.raises(Refused, match=r"older than 6\.2"):
            read_info(info)


@pytest.mark.parametrize(
    "url",
    ["redis://host:port", "redis://host/db", "redis://host/0#x", "redis://host?ssl_ca_certs=x", "redis://host?x=1"],
)
def test_a_url_that_means_nothing_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting):
        connect(url)


def test_a_url_says_all_there_is_to_know() -> None:
    address = RedisUrl.from_url("redis://me:p%40ss@[::1]:7000/3").data
    assert (address.host, address.port, address.database) == ("::1", 7000, 3)
    assert (address.username, address.password) == ("me", "p@ss")
    assert "p@ss" not in address.shown + repr(address)
    with pytest.raises(UnknownScheme):
        RedisUrl.from_url("http://host")


def a_pool(server: RedisServer, size: int, wait_seconds: float = 5) -> ConnectionPool:
    return ConnectionPool(RedisUrl.from_url(server.url).data, size=size, wait_seconds=wait_seconds)


async def test_an_exhausted_pool_waits_and_serves_when_a_connection_is_free() -> None:
    pool = a_pool(fresh(), 2)
    held = [await pool.acquire() for _ in range(2)]
    call = asyncio.create_task(pool.call(("PING",)))
    await real_time(timedelta(milliseconds=30))
    assert not call.done()
    pool.release(held.pop())
    assert await call == [b"PONG"]
    assert pool.open_connections == 2
    pool.close()


async def test_an_exhausted_pool_gives_up_after_its_wait_with_a_typed_error() -> None:
    pool = a_pool(fresh(), 1, wait_seconds=0.05)
    held = await pool.acquire()
    with pytest.raises(BrokerBusy, match=r"all 1 connections were in use within 0\.05 s"):
        await pool.call(("PING",))
    pool.release(held)
    assert await pool.call(("PING",)) == [b"PONG"]
    pool.close()


async def test_idle_connections_above_half_are_closed() -> None:
    server = fresh()
    pool = a_pool(server, 10)
    held = [await pool.acquire() for _ in range(10)]
    for link in held:
        pool.release(link)
    assert (pool.open_connections, pool.idle_connections) == (5, 5)
    with server.client() as client:
        await eventually(lambda: len(client.client_list()) <= 6, what="five closed")
    pool.close()


async def test_a_cancelled_call_does_not_disturb_the_next() -> None:
    pool = a_pool(fresh(), 1)
    await pool.call(("SET", "x", "1"))
    call = asyncio.create_task(pool.call(("GET", "x")))
    await asyncio.sleep(0)
    call.cancel()
    assert await pool.call(("ECHO", "mine")) == [b"mine"]
    pool.close()


async def test_a_hundred_waiting_pulls_share_one_connection_beside_the_pool() -> None:
    server = fresh()
    async with RedisBroker(server.url, max_connections=2) as broker:
        for queue in ("a", "b"):
            await broker.declare(QueueSpec(name=queue))
        pulls = [
            asyncio.create_task(
                broker.pull("ab"[n % 2], "default", worker=f"w{n}", limit=1, lease=LEASE, wait=timedelta(seconds=8))
            )
            for n in range(100)
        ]

        def all_wait() -> bool:
            with server.client() as client:
                return any(one["cmd"] == "bzpopmin" for one in client.client_list())

        await eventually(all_wait, what="the pulls wait")
        await broker.publish([seal(Message(queue="ab"[n % 2])) for n in range(100)])
        assert [len(found) for found in await asyncio.gather(*pulls)] == [1] * 100
        with server.client() as client:
            assert len(client.client_list()) <= 4


async def test_a_closed_broker_says_so_and_leaves_no_connection() -> None:
    server = fresh()
    broker = RedisBroker(server.url)
    async with broker:
        await broker.declare(QueueSpec(name="orders"))
    with pytest.raises(BrokerClosed):
        await broker.stats()
    with server.client() as client:
        await eventually(lambda: len(client.client_list()) == 1, what="no connection left")


async def test_a_call_cancelled_at_any_moment_gives_its_connection_back() -> None:
    pool = a_pool(fresh(), 2)
    await pool.call(("PING",))

    async def free() -> None:
        await eventually(lambda: pool.open_connections == pool.idle_connections, within=timedelta(seconds=5))

    assert await cancelled_everywhere(lambda: pool.call(("PING",)), free) == 1
    pool.close()


async def test_whoever_waits_for_a_connection_is_served_when_one_before_him_is_cancelled() -> None:
    pool = a_pool(fresh(), 1)
    held = await pool.acquire()
    first, second = (asyncio.create_task(pool.call(("ECHO", "x"))) for _ in range(2))
    await asyncio.sleep(0)
    held.abort(ConnectionError("broken"))
    pool.release(held)  # the first may open another one
    first.cancel()
    assert await soon(second, 2) == [b"x"]
    pool.close()


async def test_a_password_that_was_changed_meanwhile_is_an_error_of_the_library() -> None:
    with redis_server() as server:
        async with RedisBroker(server.url) as broker:
            await broker.declare(QueueSpec(name="orders"))
            with server.client() as client:
                client.config_set("requirepass", "secret")
                client.client_kill_filter(_type="normal")
            with pytest.raises(BrokerUnavailable, match="REDIS_PASSWORD"):
                await broker.stats()
