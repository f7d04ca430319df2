"""FastStream: a stream with a group, a hundred records a read, acknowledged after the handler; pipelines for many."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from faststream import FastStream
from faststream.redis import RedisBroker, StreamSub
from redis.asyncio import Redis

from benchmarks.peers_side import URL, Payload, notes, obey_async

broker = RedisBroker(URL, logger=None)
app = FastStream(broker, logger=None)
TOGETHER = 100


@broker.subscriber(stream=StreamSub("peers", group="peers", consumer="one", last_id=">", max_records=100))
async def handle(found: Payload) -> None:
    notes.seen(found)


async def one(each: Payload) -> None:
    await broker.publish(each, stream="peers")


async def producing() -> None:
    client = Redis.from_url(URL)

    async def many(payloads: Sequence[Payload]) -> None:
        for start in range(0, len(payloads), TOGETHER):
            async with client.pipeline(transaction=False) as pipeline:
                for each in payloads[start : start + TOGETHER]:
                    await broker.publish(each, stream="peers", pipeline=pipeline)
                await pipeline.execute()

    # Its group is made by the worker, at the end of the stream, unless it is there already.
    await client.xgroup_create("peers", "peers", id="0", mkstream=True)
    async with broker:
        await obey_async(one, many)


def produce() -> None:
    """Publish as ordered."""
    asyncio.run(producing())


if __name__ == "__main__":
    asyncio.run(app.run())
