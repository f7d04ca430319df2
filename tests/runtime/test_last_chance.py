"""A message on its last chance is handled alone, by a consumer that goes on as if nothing had been."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from godwit.brokers.contract import Ack, Delivery
from godwit.brokers.memory import MemoryBroker
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.names import DEFAULT_GROUP, MessageId, QueueName
from godwit.core.queues import DEFAULT_MAX_CRASHES, GroupSpec, QueueSpec
from godwit.runtime.worker.consumer import Consumer, Handler
from godwit.runtime.worker.worker import Worker, WorkerSettings
from tests.waiting import eventually

Q = QueueName("q")
LONG = timedelta(minutes=1)


class RivalBroker(MemoryBroker):
    """A memory broker with another worker on it, which takes what was handed back."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Delivery] = []
        self.is_waiting = False

    async def pull(self, *arguments: Any, limit: int, **options: Any) -> list[Delivery]:
        """Pull, but let the other worker come first where one message is wanted alone."""
        if self.is_waiting and limit == 1:
            self.is_waiting = False
            self.taken = await super().pull(Q, DEFAULT_GROUP, worker="rival", limit=1, lease=LONG)
        return await super().pull(*arguments, limit=limit, **options)


async def publish(broker: MemoryBroker, *names: str) -> None:
    await broker.publish([seal(Message(queue=Q, id=MessageId(name))) for name in names])


async def suspected(broker: MemoryBroker) -> None:
    """Make a message that workers died with as often as one may and be handled beside others."""
    await broker.declare(QueueSpec(name=Q), [GroupSpec(name=DEFAULT_GROUP, forgive_outages=False)])
    await publish(broker, "suspect")

    async def came_back() -> bool:
        await broker.maintain()
        return (await broker.stats())[0].groups[0].ready == 1

    for _ in range(DEFAULT_MAX_CRASHES - 1):
        assert await broker.pull(Q, DEFAULT_GROUP, worker="dead", limit=1, lease=timedelta(milliseconds=1))
        await eventually(came_back)


@asynccontextmanager
async def at_work(broker: MemoryBroker, handler: Handler) -> AsyncIterator[Worker]:
    worker = Worker(
        broker, [Consumer(handler=handler, queues=(Q,))], settings=WorkerSettings(grace=timedelta(seconds=5))
    )
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


async def test_a_message_on_its_last_chance_that_came_by_itself_disturbs_nobody() -> None:
    seen: list[str] = []

    async def handler(message: Message) -> None:
        seen.append(message.id)

    async with MemoryBroker() as broker:
        await suspected(broker)
        async with at_work(broker, handler) as worker:
            await eventually(lambda: seen == ["suspect"])
            await publish(broker, "next")
            await eventually(lambda: seen == ["suspect", "next"])
            assert worker.watchdog.restarts == 0


async def test_a_message_on_its_last_chance_that_another_worker_took_disturbs_nobody() -> None:
    seen: list[str] = []

    async def handler(message: Message) -> None:
        seen.append(message.id)

    async with RivalBroker() as broker:
        await suspected(broker)
        broker.is_waiting = True
        async with at_work(broker, handler) as worker:
            await eventually(lambda: len(broker.taken) == 1)
            await publish(broker, "next")
            await eventually(lambda: seen == ["next"])
            assert worker.watchdog.restarts == 0
        assert await broker.settle([Ack(broker.taken[0].ack_id)]) == []


async def test_a_message_on_its_last_chance_waits_for_what_is_in_hand_and_the_others_for_it() -> None:
    at_once: list[set[str]] = []
    running: set[str] = set()
    go_on = asyncio.Event()

    async def handler(message: Message) -> None:
        running.add(message.id)
        at_once.append(set(running))
        if message.id == "long":
            await go_on.wait()
        await asyncio.sleep(0)
        running.discard(message.id)

    async with MemoryBroker() as broker:
        await suspected(broker)
        await publish(broker, "long")
        async with at_work(broker, handler) as worker:
            await eventually(lambda: at_once == [{"long"}])
            await publish(broker, "late")
            go_on.set()
            await eventually(lambda: len(at_once) == 3)
            assert at_once[1:] == [{"suspect"}, {"late"}]
            assert worker.watchdog.restarts == 0
