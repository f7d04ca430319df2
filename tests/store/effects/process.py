"""A process of an application that may be killed: `python -m tests.store.effects.process ROLE BROKER_FILE STORE_URL`.

`charge` handles messages with a ledger beside the effect, `book` with effect and key in one transaction; `forward`
empties the outbox. Each leaves when nothing is left to do.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import asyncpg

from godwit.brokers.sqlite import SqliteBroker
from godwit.core.fault_points import fault_point
from godwit.core.messages.message import Message
from godwit.manager import MessageQueueManager
from godwit.store.urls import connect
from tests.waiting import eventually

LEASE = timedelta(milliseconds=400)


def manager(file: str, url: str) -> MessageQueueManager:
    return MessageQueueManager(SqliteBroker(file), store=connect(url))


async def is_empty(mq: MessageQueueManager) -> bool:
    """Say whether nothing waits for its end."""
    return not any(group.depth for queue in await mq.broker.stats() for group in queue.groups)


async def until_empty(mq: MessageQueueManager) -> None:
    """Run a worker until nothing waits for its end."""
    worker = mq.worker()
    running = asyncio.create_task(worker.run())
    await eventually(lambda: is_empty(mq), within=timedelta(seconds=50))
    worker.stop()
    await running


async def charge(file: str, url: str) -> None:
    mq = manager(file, url)
    effects = Path(f"{file}.effects")

    @mq.consumer("orders", lease=LEASE, once=lambda message: f"order:{message.payload['order']}")
    def handle(message: Message) -> str:
        with effects.open("a") as record:
            record.write(f"{message.payload['order']}\n")
        fault_point("test.made")
        return f"receipt {message.payload['order']}"

    async with mq:
        await until_empty(mq)


async def book(file: str, url: str) -> None:
    mq = manager(file, url)

    @mq.consumer("orders", lease=LEASE)
    async def handle(message: Message) -> None:
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                order = message.payload["order"]
                async with mq.once(f"order:{order}", connection=connection) as first:
                    if first:
                        await connection.execute("INSERT INTO effects VALUES ($1)", order)
                        fault_point("test.uncommitted")
            fault_point("test.committed")
        finally:
            await connection.close()

    async with mq:
        await until_empty(mq)


async def forward(file: str, url: str) -> None:
    mq = manager(file, url)
    async with mq:
        while (await mq.store_services.store("test").outbox.backlog()).waiting:
            await mq.store_services.forwarder.tick()


if __name__ == "__main__":
    asyncio.run({"charge": charge, "book": book, "forward": forward}[sys.argv[1]](*sys.argv[2:]))
