"""A worker over a memory broker, and what the tests of its failures ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from godwit.brokers.memory import MemoryBroker
from godwit.core.failures.retry import RetryPolicy, Strategy
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.names import DEFAULT_GROUP, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.worker import Worker, WorkerSettings

Q = QueueName("q")
AT_ONCE = RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=2)


@asynccontextmanager
async def at_work(broker: MemoryBroker, handler: Callable[[Message], Any], **options: Any) -> AsyncIterator[Worker]:
    await broker.declare(QueueSpec(name=Q), [GroupSpec(name=DEFAULT_GROUP, max_crashes=None)])
    settings = WorkerSettings(grace=timedelta(seconds=0.2), heartbeat_interval=timedelta(seconds=0.1))
    worker = Worker(broker, [Consumer(handler=handler, queues=(Q,), **options)], settings=settings)
    work = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(work, 30)


async def publish(broker: MemoryBroker, *payloads: str) -> None:
    await broker.publish([seal(Message(queue=Q, payload=payload)) for payload in payloads])


async def empty(broker: Any) -> bool:
    return all(group.depth == 0 for queue in await broker.stats() for group in queue.groups)
