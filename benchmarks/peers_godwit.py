"""Godwit as a side of the comparison, with all its promises on: dedup, journal, leases, limits; one call a message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from benchmarks.peers_side import URL, Payload, notes, obey_async
from godwit import Message, MessageQueueManager

QUEUE: Final = "peers"
mq = MessageQueueManager.from_url(URL)


@mq.consumer(QUEUE, concurrency=100)
async def handle(message: Message) -> None:
    notes.seen(message.payload)


async def one(each: Payload) -> None:
    await mq.enqueue(Message(queue=QUEUE, type="peer", payload=each))


async def many(payloads: Sequence[Payload]) -> None:
    await mq.enqueue_many([Message(queue=QUEUE, type="peer", payload=each) for each in payloads])


async def producing() -> None:
    async with mq:
        await obey_async(one, many)


def produce() -> None:
    """Publish as ordered."""
    asyncio.run(producing())
