"""Handlers of one group told apart by types share its messages; only a type that no member handles is given up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

import pytest

from godwit.core.failures.failure import FailureKind
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.manager import MessageQueueManager
from godwit.testing import in_memory, run_until_empty
from tests.waiting import eventually

TYPES = ("paid", "refunded")


M = TypeVar("M", bound=MessageQueueManager)


def shop(mq: M, handled: Counter[tuple[str, str]], *, concurrency: int = 3, batch: int | None = None) -> M:
    """Return the manager with a handler for each of two types in one group."""
    for name in TYPES:

        async def handle(message: Message, mine: str = name) -> None:
            await asyncio.sleep(0)
            handled[mine, message.type] += 1

        async def handle_many(messages: list[Message], mine: str = name) -> None:
            handled.update((mine, message.type) for message in messages)

        mq.consumer("orders", group="books", types=[name], concurrency=concurrency, batch=batch)(
            handle if batch is None else handle_many
        )
    return mq


def mixed(count: int, types: Sequence[str] = TYPES) -> list[Message]:
    return [Message(queue="orders", type=types[index % len(types)]) for index in range(count)]


@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_two_handlers_of_a_worker_each_get_their_types(concurrency: int, batch: int | None) -> None:
    handled: Counter[tuple[str, str]] = Counter()
    async with (mq := shop(in_memory(), handled, concurrency=concurrency, batch=batch)):
        await mq.enqueue_many(mixed(40))
        ran = await run_until_empty(mq)
    assert handled == {("paid", "paid"): 20, ("refunded", "refunded"): 20}
    assert ran.dead == 0


async def test_a_handler_is_never_given_more_than_its_concurrency() -> None:
    mq = in_memory()
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for name in TYPES:

        async def handle(message: Message) -> None:
            running[message.type] += 1
            most[message.type] = max(most[message.type], running[message.type])
            await asyncio.sleep(0.001)
            running[message.type] -= 1

        mq.consumer("orders", group="books", types=[name], concurrency=2)(handle)
    async with mq:
        await mq.enqueue_many(mixed(60))
        ran = await run_until_empty(mq)
    assert most == {"paid": 2, "refunded": 2}
    assert (ran.dead, ran.handled) == (0, 60)


async def test_members_in_different_processes_leave_each_other_their_types() -> None:
    handled: Counter[tuple[str, str]] = Counter()
    async with (mq := shop(MessageQueueManager.from_url("memory://"), handled)):
        workers = [mq.worker(name=one.name, consumers=[one]) for one in mq.consumers]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        await mq.enqueue_many(mixed(20))
        await eventually(lambda: handled.total() >= 20)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)
        assert await mq.broker.dead_letters.page(QueueName("orders")) == []
    assert handled == {("paid", "paid"): 10, ("refunded", "refunded"): 10}


async def test_a_type_that_no_member_handles_is_given_up_once_others_had_time_to_come() -> None:
    handled: Counter[tuple[str, str]] = Counter()
    async with (mq := shop(in_memory(), handled)):
        await mq.enqueue_many(mixed(9, ("paid", "refunded", "lost")))
        ran = await run_until_empty(mq)
        letters = await mq.broker.dead_letters.page(QueueName("orders"))
    assert handled.total() == 6
    assert {(letter.kind, letter.errors[-1].message) for letter in letters} == {
        (FailureKind.PERMANENT, "Permanent: no live member of group 'books' handles the type 'lost'")
    }
    assert len(letters) == 3
    assert ran.took >= timedelta(seconds=10), "a member that starts a little later finds its messages"
