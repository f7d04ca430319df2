"""The way of a message in docs/architecture.md, from enqueue to ack, is the one it takes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from godwit import Message, MessageQueueManager
from godwit.brokers.contract import Ack, Delivery
from godwit.core.messages.envelope import Envelope
from tests.servers.redis import fresh
from tests.ways import ModuleTrace, drawn, names_one_of

if TYPE_CHECKING:
    from godwit.runtime.worker.worker import Worker

MOST_MODULES = 40
ROUNDS = 4


async def ways() -> list[set[str]]:
    """Return the modules that each of some messages goes through, enqueued and handled alone."""
    mq, handled = MessageQueueManager.from_url(fresh().url), asyncio.Event()
    found: list[set[str]] = []

    @mq.consumer("orders")
    async def handle(message: Message) -> None:
        handled.set()

    async with mq:
        worker = mq.worker()
        running = asyncio.create_task(worker.run())
        for _ in range(ROUNDS):
            await waits(worker)
            handled.clear()
            message = Message(queue="orders")
            with ModuleTrace(partial(carries, message.id)) as trace:
                await mq.enqueue(message)
                await handled.wait()
                await settled(worker)
            found.append(trace.modules)
        worker.stop()
        await running
    return found


def carries(message_id: str, value: object) -> bool:
    """Say whether a value is the message in one of its forms, or names it."""
    return isinstance(value, Message | Envelope | Delivery | Ack) or names_one_of(value, [message_id])


async def settled(worker: Worker) -> None:
    while not worker.is_idle():  # noqa: ASYNC110 - the state of a worker is no event
        await asyncio.sleep(0)


async def waits(worker: Worker) -> None:
    """Give the worker time to wait on the server, as it does between messages."""
    await settled(worker)
    await asyncio.sleep(0.2)


async def test_a_message_takes_the_drawn_way_through_few_modules() -> None:
    found = (await ways())[1:]  # the first one opens connections
    way = drawn("The way of a message")
    assert set.intersection(*found) - way == set(), "the message goes through these too"
    assert way - set[str]().union(*found) == set(), "the message does not go through these"
    assert len(way) < MOST_MODULES
