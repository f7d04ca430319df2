"""Handlers that begin in one task one after another do not know of each other."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from datetime import timedelta

from godwit.brokers.memory import MemoryBroker
from godwit.core.failures.failure import FailureKind
from godwit.core.failures.retry import RetryPolicy, Strategy
from godwit.core.messages.message import Message
from godwit.runtime.worker.consumer import CURRENT
from godwit.runtime.worker.worker import WorkerSettings
from tests.runtime.test_worker import Q, at_work, dead, depth, empty
from tests.steal_time import calm
from tests.waiting import eventually

MARK: ContextVar[object] = ContextVar("mark", default=None)
ONCE = RetryPolicy(max_attempts=1, strategy=Strategy.IMMEDIATE)


async def test_handlers_that_do_not_wait_share_a_task_and_no_context() -> None:
    marks: list[object] = []
    tasks: set[asyncio.Task[object] | None] = set()

    async def handler(message: Message) -> None:
        marks.append(MARK.get())
        MARK.set(message.payload)
        tasks.add(asyncio.current_task())

    async with at_work(handler, messages=10, concurrency=10) as (broker, _):
        await eventually(lambda: empty(broker))
    assert marks == [None] * 10
    assert len(tasks) == 1


async def test_a_handler_that_waits_keeps_its_context_and_has_its_task_for_itself() -> None:
    go_on = asyncio.Event()
    kept: list[bool] = []
    tasks: list[asyncio.Task[object] | None] = []

    async def handler(message: Message) -> None:
        MARK.set(message.payload)
        task = asyncio.current_task()
        tasks.append(task)
        async with asyncio.timeout(60):
            await go_on.wait()
        await asyncio.sleep(0)
        seen_by_child = await asyncio.create_task(mark())
        (held,) = CURRENT.get()
        right = MARK.get() == seen_by_child == message.payload and held.message_id == message.id
        kept.append(right and asyncio.current_task() is task)

    async def mark() -> object:
        return MARK.get()

    async with at_work(handler, messages=10, concurrency=10) as (broker, _):
        await eventually(lambda: len(tasks) == 10)
        go_on.set()
        await eventually(lambda: empty(broker))
    assert kept == [True] * 10
    assert len(set(tasks)) == 10


async def test_one_that_waits_does_not_keep_the_others_waiting() -> None:
    done: list[int] = []
    go_on = asyncio.Event()

    async def handler(message: Message) -> None:
        if message.payload % 3 == 0:
            await go_on.wait()
        done.append(message.payload)

    async with at_work(handler, messages=9, concurrency=9) as (broker, _):
        await eventually(lambda: sorted(done) == [1, 2, 4, 5, 7, 8])
        await eventually(lambda: _depth_is(broker, 3))
        go_on.set()
        await eventually(lambda: empty(broker))


async def test_a_time_limit_hits_the_handler_that_waits_and_no_other() -> None:
    async def handler(message: Message) -> None:
        if message.payload == 1:
            await asyncio.Event().wait()

    limit = timedelta(milliseconds=50)
    async with at_work(handler, messages=5, concurrency=5, time_limit=limit, retry_policy=ONCE) as (broker, _):
        await eventually(lambda: empty(broker))
        (letter,) = await broker.dead_letters.page(Q)
        assert (letter.envelope.id, letter.kind) == ("m1", FailureKind.EXPIRED)


async def test_time_spent_before_the_first_wait_counts_toward_the_limit() -> None:
    async def handler(_: Message) -> None:
        time.sleep(1)  # noqa: ASYNC251
        await asyncio.Event().wait()

    limit = timedelta(milliseconds=950)
    began = calm()
    async with at_work(handler, messages=1, time_limit=limit, retry_policy=ONCE) as (broker, _):
        await eventually(lambda: empty(broker))
        assert await dead(broker) == 1
    assert calm() - began < 1.8


async def test_a_handler_that_cancels_its_own_task_does_not_hit_the_next() -> None:
    waited: list[int] = []

    async def handler(message: Message) -> None:
        if message.payload == 0:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return
        await asyncio.sleep(0)
        waited.append(message.payload)

    async with at_work(handler, messages=3, concurrency=3, retry_policy=ONCE) as (broker, _):
        await eventually(lambda: empty(broker))
        assert await dead(broker) == 0
    assert sorted(waited) == [1, 2]


async def test_what_was_pulled_and_not_begun_is_handed_back_by_a_second_stop() -> None:
    begun: list[int] = []

    async def handler(message: Message) -> None:
        begun.append(message.payload)
        if len(begun) == 1:
            worker.stop()
            worker.stop()
        await asyncio.Event().wait()

    settings = WorkerSettings(grace=timedelta(seconds=60))
    async with at_work(handler, messages=20, concurrency=20, settings=settings) as (broker, worker):
        await eventually(lambda: _none_leased(broker))
        assert await depth(broker) == 20


async def _depth_is(broker: MemoryBroker, expected: int) -> bool:
    return await depth(broker) == expected


async def _none_leased(broker: MemoryBroker) -> bool:
    group = (await broker.stats())[0].groups[0]
    return group.leased == 0 and group.ready == 20
