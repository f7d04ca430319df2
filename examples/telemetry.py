"""Telemetry: streamers publish readings, collectors check and store them, each reading by one collector.

python telemetry.py                    both roles in this process, in memory
REDIS_URL=redis:6379 python telemetry.py streamer       one of many streamers
REDIS_URL=redis:6379 godwit worker telemetry:mq         one of many collectors

Nothing but REDIS_URL decides between memory and Redis. REDIS_STREAM, REDIS_GROUP, REDIS_CONSUMER_ID, VISIBILITY_TIMEOUT
and MAX_RETRIES work as well; the store is the SQLite file that TELEMETRY_DB names.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import sys

from godwit import Message, MessageQueueManager, Permanent

mq = MessageQueueManager.from_url(None if os.environ.get("REDIS_URL") else "memory://")
STREAM, GROUP = mq.settings.redis.stream, mq.settings.redis.group
READINGS = int(os.environ.get("READINGS", "30"))
HOTTEST = 1_000.0

store = sqlite3.connect(os.environ.get("TELEMETRY_DB", ":memory:"), timeout=30, isolation_level=None)
store.execute("PRAGMA journal_mode = WAL")
store.execute("CREATE TABLE IF NOT EXISTS reading (id TEXT PRIMARY KEY, sensor TEXT, celsius REAL, collector TEXT)")


@mq.consumer(STREAM, group=GROUP, concurrency=5)
async def collect(message: Message) -> None:
    """Check one reading and store it; what is no reading goes to the dead letters at once."""
    reading = message.payload
    if not isinstance(reading, dict) or not isinstance(reading.get("celsius"), int | float):
        raise Permanent(f"not a reading: {reading!r}")
    if reading["celsius"] > HOTTEST:
        raise ValueError("the sensor is broken")  # tried again, MAX_RETRIES times in all
    # Delivered is at least once; the message's id makes the effect happen once.
    row = (
        message.id,
        reading.get("sensor", "unknown"),
        reading["celsius"],
        os.environ.get("REDIS_CONSUMER_ID", "here"),
    )
    store.execute("INSERT OR IGNORE INTO reading VALUES (?, ?, ?, ?)", row)


async def stream(sensor: str, count: int) -> None:
    """Publish readings of one sensor."""
    for number in range(count):
        await mq.enqueue(Message(queue=STREAM, type="reading", payload={"sensor": sensor, "celsius": 20 + number % 10}))


async def streamer() -> None:
    """Only publish."""
    async with mq:
        await stream(f"{socket.gethostname()}-{os.getpid()}", READINGS)


async def both() -> None:
    """Publish from three sensors and collect, in one process."""
    async with mq:
        worker = mq.worker()
        working = asyncio.create_task(worker.run())
        await asyncio.gather(*(stream(f"sensor-{number}", READINGS // 3) for number in range(3)))
        while any(group.depth for queue in await mq.broker.stats() for group in queue.groups):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # only here: a real collector runs until SIGTERM
        worker.stop()
        await working
    (stored,) = store.execute("SELECT count(*) FROM reading").fetchone()
    print(f"{stored} readings of {READINGS} collected")


if __name__ == "__main__":
    asyncio.run(streamer() if sys.argv[1:] == ["streamer"] else both())
