"""Replies whose waiter goes on at once: in the turn in which they come, in order; else they are like futures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from godwit.brokers.redis.client.connection import RedisConnection, packed_command
from godwit.brokers.redis.client.errors import LinkLost
from godwit.brokers.redis.client.inline_future import InlineFuture, resume_all
from godwit.brokers.redis.url import RedisUrl
from tests.servers.redis import RedisServer, redis_server

SECONDS = 10.0


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as one:
        yield one


class Watched(RedisConnection):
    """Remembers which tasks have gone on when a read is over."""

    tasks: tuple[asyncio.Task[object], ...] = ()
    done: tuple[bool, ...] = ()

    def buffer_updated(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        self.done = tuple(task.done() for task in self.tasks)


@asynccontextmanager
async def opened(server: RedisServer) -> AsyncIterator[Watched]:
    link = Watched(RedisUrl.from_url(server.url).data)
    await link.open(SECONDS)
    try:
        yield link
    finally:
        link.close()
        await asyncio.sleep(0)  # its transport ends in the next turn


def echo(word: str) -> bytes:
    return packed_command(("ECHO", word))


async def told(link: RedisConnection, word: str, order: list[str]) -> bytes:
    (reply,) = await link.ask(echo(word))
    order.append(word)
    answer: bytes = reply
    return answer


async def test_those_who_wait_go_on_in_the_turn_in_which_the_replies_come(server: RedisServer) -> None:
    async with opened(server) as link:
        order: list[str] = []
        link.tasks = tuple(asyncio.create_task(told(link, word, order)) for word in ("a", "b", "c"))
        assert await asyncio.gather(*link.tasks) == [b"a", b"b", b"c"]
        assert link.done == (True, True, True)
        assert order == ["a", "b", "c"]


async def test_a_waiter_keeps_its_own_context_and_may_ask_again(server: RedisServer) -> None:
    async def twice() -> tuple[bytes, asyncio.Task[object] | None]:
        await link.ask(echo("first"))
        task = asyncio.current_task()
        return (await link.ask(echo("second")))[0], task

    async with opened(server) as link:
        task = asyncio.create_task(twice())
        assert await task == (b"second", task)


async def test_a_waiter_that_is_cancelled_lets_the_next_reply_go_to_whom_it_belongs(server: RedisServer) -> None:
    async with opened(server) as link:
        order: list[str] = []
        gone = asyncio.create_task(told(link, "gone", order))
        stays = asyncio.create_task(told(link, "stays", order))
        await asyncio.sleep(0)  # both have sent
        gone.cancel("it was enough")
        assert await stays == b"stays"
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert order == ["stays"]


async def test_a_reply_in_time_counts_under_a_deadline_and_a_late_one_does_not(server: RedisServer) -> None:
    async with opened(server) as link:
        async with asyncio.timeout(SECONDS):
            assert await link.ask(echo("soon")) == [b"soon"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await link.ask(packed_command(("BLPOP", "nothing", 0)))


async def test_a_connection_that_breaks_or_is_broken_tells_who_waits(server: RedisServer) -> None:
    async with opened(server) as link:
        waiting = asyncio.create_task(told(link, "x", []))
        await asyncio.sleep(0)
        link.abort(LinkLost("cut"))
        with pytest.raises(LinkLost, match="cut"):
            await waiting
        with pytest.raises(LinkLost, match="cut"):
            await link.ask(echo("later"))


async def test_one_who_stops_the_program_does_not_keep_the_others_from_going_on() -> None:
    class Stop(BaseException):
        """What ends a program."""

    def stop(_: InlineFuture) -> None:
        raise Stop

    loop, went_on = asyncio.get_running_loop(), asyncio.Event()
    stopping, other = InlineFuture(loop), InlineFuture(loop)
    stopping.add_done_callback(stop)
    other.add_done_callback(lambda _: went_on.set())
    with pytest.raises(Stop):
        resume_all([stopping, other])
    assert not went_on.is_set()
    async with asyncio.timeout(SECONDS):
        await went_on.wait()
