"""taskiq: its stream broker, which acknowledges; read from the start, since the backlog is there before the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from taskiq_redis import RedisStreamBroker

from benchmarks.peers_side import URL, Payload, notes, obey_async

broker = RedisStreamBroker(url=URL, queue_name="peers", consumer_id="0")
TOGETHER = 100


@broker.task(task_name="handle")
async def handle(found: Payload) -> None:
    notes.seen(found)


async def many(payloads: Sequence[Payload]) -> None:
    """Publish a hundred at once: it has no bulk call."""
    for start in range(0, len(payloads), TOGETHER):
        await asyncio.gather(*(handle.kiq(each) for each in payloads[start : start + TOGETHER]))


async def producing() -> None:
    await broker.startup()
    await obey_async(handle.kiq, many)
    await broker.shutdown()


def produce() -> None:
    """Publish as ordered."""
    asyncio.run(producing())
