"""Replies that are lost: a call that is sent again tells what its first run did, and nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from godwit.brokers.contract import Ack, Delivery, GiveUp, HandBack, Nack, Postpone, Settlement
from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.client import pool
from godwit.brokers.redis.client.scripts import script
from godwit.core.errors import BrokerClosed
from godwit.core.failures.failure import FailureKind
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import QueueSpec
from tests.servers.processes import HOST
from tests.servers.redis import RedisServer, fresh, redis_server
from tests.steal_time import calm
from tests.waiting import eventually, soon

Q, G = QueueName("orders"), GroupName("default")
LEASE, NOW = timedelta(seconds=60), timedelta(0)
SCRIPTS = ("ack", "settle", "shared", "cancel", "replay", "discard", "purge", "remove")
T = TypeVar("T")


def message(name: str) -> Envelope:
    return seal(Message(id=MessageId(name), queue=Q, payload=name))


@asynccontextmanager
async def opened(server: RedisServer) -> AsyncIterator[RedisBroker]:
    with server.client() as client:
        for name in SCRIPTS:
            client.script_load(script(name).source)
    async with RedisBroker(server.url, max_connections=1) as broker:
        await broker.declare(QueueSpec(name=Q))
        yield broker


async def leased(broker: RedisBroker, *names: str) -> list[Delivery]:
    await broker.publish([message(name) for name in names])
    return await broker.pull(Q, G, worker="w", limit=len(names), lease=LEASE)


async def without_reply(server: RedisServer, broker: RedisBroker, call: Callable[[], Awaitable[T]]) -> T:
    """Make a call whose reply the server does not send; the connection breaks once it has run."""
    link = await broker._servers.pool.acquire()
    send = link.send_packed

    def send_unanswered(commands: bytes, count: int = 1) -> asyncio.Future[list[Any]]:
        if b"EVALSHA" in commands:
            link._transport.write(b"CLIENT REPLY OFF\r\n")  # type: ignore[union-attr]
        return send(commands, count)

    link.send_packed = send_unanswered  # type: ignore[method-assign]
    broker._servers.pool.release(link)
    with server.client() as client:

        def calls() -> int:
            return int(client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))

        before = calls()
        made = asyncio.ensure_future(call())
        await eventually(lambda: calls() > before, what="the server ran it")
    link._transport.abort()  # type: ignore[union-attr]
    return await soon(made, 10)


async def depth(broker: RedisBroker) -> tuple[int, int, int]:
    (group,) = (await broker.stats())[0].groups
    return group.depth, group.leased, group.dead


async def test_settlements_whose_reply_was_lost_are_not_called_refused() -> None:
    server = fresh()
    async with opened(server) as broker:
        one, two, three, four, five, six = await leased(broker, "a", "b", "c", "d", "e", "f")
        acks = [Ack(one.ack_id, run_ms=1), Ack(two.ack_id, run_ms=1)]
        assert await without_reply(server, broker, lambda: broker.settle(acks)) == []
        verbs: list[Settlement] = [
            Nack(three.ack_id, LEASE), GiveUp(four.ack_id, FailureKind.PERMANENT), HandBack(five.ack_id),
            Postpone(six.ack_id, LEASE),
        ]  # fmt: skip
        assert await without_reply(server, broker, lambda: broker.settle(verbs)) == []
        assert await depth(broker) == (3, 0, 1)
        (again,) = await broker.pull(Q, G, worker="w", limit=9, lease=LEASE)
        assert (again.message_id, again.attempt) == ("e", 1)


@pytest.mark.parametrize("ended", [HandBack, lambda ack_id: Nack(ack_id, LEASE)])
async def test_a_settlement_that_came_too_late_is_refused_also_when_its_reply_was_lost(
    ended: Callable[..., Settlement],
) -> None:
    server = fresh()
    async with opened(server) as broker, RedisBroker(server.url) as other:
        one, two, three = await leased(broker, "a", "b", "c")
        assert await other.settle([ended(one.ack_id)]) == []
        acks = [Ack(one.ack_id, run_ms=1), Ack(two.ack_id, run_ms=1)]
        assert await without_reply(server, broker, lambda: broker.settle(acks)) == [one.ack_id]
        twice: list[Settlement] = [Ack(three.ack_id), Nack(three.ack_id, NOW)]
        assert await without_reply(server, broker, lambda: broker.settle(twice)) == [three.ack_id]


async def test_a_shared_value_whose_reply_was_lost_has_the_version_it_was_given() -> None:
    server = fresh()
    async with opened(server) as broker:
        shared = broker.shared
        version = await without_reply(server, broker, lambda: shared.put("claim", b"me", expected=None))
        entry = await shared.get("claim")
        assert entry is not None
        assert entry.version == version
        assert await without_reply(server, broker, lambda: shared.put("claim", b"me", expected=None)) is None
        again = await without_reply(server, broker, lambda: shared.put("claim", b"me", expected=version))
        assert again is not None
        assert again > entry.version


async def test_a_cancellation_a_purge_and_a_removal_whose_replies_were_lost_say_what_they_did() -> None:
    server = fresh()
    async with opened(server) as broker:
        await broker.publish([message("a"), message("b"), message("c")])
        assert await without_reply(server, broker, lambda: broker.cancel(Q, MessageId("b"))) is True
        assert await broker.cancel(Q, MessageId("b")) is False
        assert await without_reply(server, broker, lambda: broker.purge(Q)) == 2
        assert await broker.purge(Q) == 0
        await without_reply(server, broker, lambda: broker.remove(Q))
        assert await broker.specs() == {}


async def test_letters_that_were_replayed_or_discarded_although_the_reply_was_lost_are_not_called_missing() -> None:
    server = fresh()
    async with opened(server) as broker:
        for delivery in await leased(broker, "a", "b"):
            await broker.settle([GiveUp(delivery.ack_id, FailureKind.PERMANENT)])
        one, two = [letter.id for letter in await broker.dead_letters.page(Q)]
        assert await without_reply(server, broker, lambda: broker.dead_letters.replay([one])) == []
        assert await without_reply(server, broker, lambda: broker.dead_letters.discard([one, two])) == [one]
        assert await depth(broker) == (1, 0, 0)


class HeldPath:
    """A path to a server that holds back, on demand, what the connections that are there send."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free = [asyncio.Event()]
        self._free[-1].set()
        self._served: list[tuple[asyncio.Event, asyncio.Task[object]]] = []

    def hold(self) -> None:
        """Hold back what the present connections send from now on; new ones are free."""
        self._free[-1].clear()
        self._free.append(asyncio.Event())
        self._free[-1].set()

    def let_go(self) -> None:
        """Let what was held back through."""
        for event in self._free:
            event.set()

    def all_held_ended(self) -> bool:
        """Say whether all connections that were held back are closed."""
        return all(task.done() for free, task in self._served if free is not self._free[-1])

    async def end(self) -> None:
        """Wait until nothing is connected."""
        self.let_go()
        await asyncio.wait([task for _, task in self._served], timeout=10)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client."""
        server_reader, server_writer = await asyncio.open_connection(HOST, self._port)
        free, task = self._free[-1], asyncio.current_task()
        assert task is not None
        self._served.append((free, task))

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, *, held: bool) -> None:
            with suppress(ConnectionError):
                while data := await source.read(65_536):
                    if held:
                        await free.wait()
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(copy(reader, server_writer, held=True), copy(server_reader, writer, held=False))


@asynccontextmanager
async def held_path(port: int) -> AsyncIterator[tuple[HeldPath, int]]:
    path = HeldPath(port)
    server = await asyncio.start_server(path.serve, HOST, 0)
    try:
        yield path, int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await path.end()


async def test_a_pull_that_was_given_up_leases_nothing_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    server = fresh()
    monkeypatch.setattr(pool, "_LOOK_SECONDS", 0.05)
    async with (
        held_path(server.port) as (path, port),
        RedisBroker(server.url) as other,
        RedisBroker(server.url.replace(f":{server.port}", f":{port}")) as broker,
    ):
        broker._servers.pool._reply_seconds = 0.2
        await broker.declare(QueueSpec(name=Q))
        assert await broker.pull(Q, G, worker="w", limit=1, lease=LEASE) == []
        path.hold()
        await other.publish([message("a")])
        (delivery,) = await soon(broker.pull(Q, G, worker="w", limit=1, lease=LEASE), 20)
        await other.publish([message("b")])
        path.let_go()
        await eventually(path.all_held_ended, what="the server has read what was held back")
        stats = (await other.stats())[0].groups[0]
        assert (delivery.message_id, stats.leased, stats.ready) == ("a", 1, 1)


@contextmanager
def paused(server: RedisServer) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def function_of(thread: threading.Thread) -> str:
    """Return the name of the function in which a thread is."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "" if frame is None else frame.f_code.co_name


async def test_closing_does_not_wait_for_a_thread_whose_server_stands_still() -> None:
    with redis_server() as server:
        async with RedisBroker(server.url) as broker:
            await broker.declare(QueueSpec(name=Q))
            (held,) = await leased(broker, "a")
            assert await asyncio.to_thread(broker.extend_now, [held.ack_id], LEASE) == []
            outcome: list[BaseException] = []

            def extend() -> None:
                try:
                    broker.extend_now([held.ack_id], LEASE)
                except BrokerClosed as error:
                    outcome.append(error)

            with paused(server):
                thread = threading.Thread(target=extend)
                thread.start()
                await eventually(lambda: function_of(thread) == "send", what="the thread waits for a reply")
                began = calm()
                await broker.close()
                assert calm() - began < 2
                await asyncio.to_thread(thread.join, 10)
            assert len(outcome) == 1
            assert broker._renewer._links == {}
