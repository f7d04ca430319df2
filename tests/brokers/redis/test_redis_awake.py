"""Waiting awake for a reply: only for a task that calls again and again, and never at the expense of others."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from godwit.brokers.contract import Broker
from godwit.brokers.redis.client.connection import RedisConnection, packed_command
from godwit.brokers.redis.client.spin_wait import TURN, SpinWait
from godwit.brokers.redis.url import RedisUrl
from godwit.brokers.urls import connect
from godwit.core.messages.envelope import Envelope
from godwit.core.names import QueueName, new_message_id
from godwit.core.queues import QueueSpec
from tests.servers.redis import RedisServer, redis_server

QUEUE = QueueName("orders")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as one:
        yield one


@asynccontextmanager
async def opened(server: RedisServer) -> AsyncIterator[Broker]:
    server.flush()
    async with connect(server.url) as broker:
        await broker.declare(QueueSpec(name=QUEUE))
        await broker.publish([message()])  # the script is loaded
        yield broker


def message() -> Envelope:
    return Envelope(new_message_id(), QUEUE, b"{}", 2, 1_700_000_000_000, "order.created")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What came of each time that a connection was read awake."""
    found: list[bool] = []
    read = RedisConnection.read_awake

    def noted(link: RedisConnection) -> bool:
        found.append(read(link))
        return found[-1]

    monkeypatch.setattr(RedisConnection, "read_awake", noted)
    return found


class Clock:
    """Time that passes when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_task_that_publishes_one_by_one_gets_replies_without_the_event_loop(
    server: RedisServer, looks: list[bool]
) -> None:
    async with opened(server) as broker:
        async with asyncio.timeout(60):
            while looks.count(True) < 20:
                (receipt,) = await broker.publish([message()])
                assert receipt.fresh


async def test_who_publishes_at_the_same_time_as_others_never_waits_awake(
    server: RedisServer, looks: list[bool]
) -> None:
    async with opened(server) as broker:
        before = len(looks)  # whoever declares and publishes first does so one by one
        for _ in range(5):
            await asyncio.gather(*(broker.publish([message()]) for _ in range(10)))
        assert len(looks) == before


async def test_nobody_waits_awake_while_others_are_ready_to_run(server: RedisServer, looks: list[bool]) -> None:
    turns = 0

    def again() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(again)

    async with opened(server) as broker:
        again()
        before = len(looks)
        for _ in range(50):
            await broker.publish([message()])
    assert len(looks) == before
    assert turns > 50


async def test_a_server_that_does_not_answer_keeps_nobody_awake(server: RedisServer) -> None:
    link = RedisConnection(RedisUrl.from_url(server.url).data)
    await link.open(60)
    try:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            replies = link.ask(packed_command(("ECHO", "late")))
            assert not link.read_awake()
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert await replies == [b"late"]
    finally:
        link.close()
        await asyncio.sleep(0)  # its transport ends in the next turn


async def test_another_task_is_not_awake_at_its_first_call() -> None:
    awake = SpinWait(Clock())
    assert not awake.worthwhile()
    assert awake.worthwhile()

    async def other() -> bool:
        return awake.worthwhile()

    assert not await asyncio.create_task(other())
    assert not awake.worthwhile()  # somebody else called in between
    assert awake.worthwhile()


async def test_the_event_loop_has_its_turn_in_time() -> None:
    clock = Clock()
    awake = SpinWait(clock)
    awake.worthwhile()
    answers = []
    for _ in range(100):
        clock.now += TURN / 4
        answers.append(awake.worthwhile())
        awake.came(in_time=True)
    asleep = [index for index, answer in enumerate(answers) if not answer]
    assert asleep
    assert max(later - earlier for earlier, later in zip([-1, *asleep], asleep, strict=False)) <= 5


async def test_replies_that_take_long_are_waited_for_asleep_more_and_more() -> None:
    awake = SpinWait(Clock())
    awake.worthwhile()
    attempts = 0
    for _ in range(10_000):
        if awake.worthwhile():
            attempts += 1
            awake.came(in_time=False)
    assert 5 < attempts < 25
    while not awake.worthwhile():
        pass
    awake.came(in_time=True)
    assert awake.worthwhile()
    awake.came(in_time=False)
    assert [awake.worthwhile() for _ in range(3)] == [False, False, True]  # it begins anew
