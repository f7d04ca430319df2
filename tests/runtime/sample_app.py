"""An application as users write it, for tests that run real workers: it records what its handlers do, outside Godwit.

Environment: GODWIT_URL, SAMPLE_RECORD (a file every handler appends to), SAMPLE_SECONDS (how long a handler takes),
SAMPLE_GO_ON (a file that handlers wait for), SAMPLE_LEASE (in seconds), SAMPLE_RATE (such as `30/s`)
with SAMPLE_BURST. Lines of the record: a word, the message, the process, nanoseconds of a clock all processes share.
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path

from godwit.core.failures.retry import RetryPolicy, Strategy
from godwit.core.messages.message import Message
from godwit.core.rate import Rate
from godwit.manager import MessageQueueManager
from tests.waiting import eventually

mq = MessageQueueManager.from_url()
RECORD = os.environ["SAMPLE_RECORD"]
SECONDS = float(os.environ.get("SAMPLE_SECONDS", "0"))
RATE = os.environ.get("SAMPLE_RATE")
GO_ON = Path(os.environ["SAMPLE_GO_ON"]) if "SAMPLE_GO_ON" in os.environ else None


def record(word: str, message: Message) -> None:
    """Append one line, durable before the handler goes on."""
    file = os.open(RECORD, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(file, f"{word} {message.id} {os.getpid()} {time.monotonic_ns()}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)


@mq.consumer(
    "orders",
    concurrency=5,
    lease=timedelta(seconds=float(os.environ.get("SAMPLE_LEASE", "1"))),
    retry_policy=RetryPolicy(max_attempts=3, strategy=Strategy.IMMEDIATE),
    rate=Rate(os.environ["SAMPLE_RATE"], burst=int(os.environ["SAMPLE_BURST"]))
    if "SAMPLE_RATE" in os.environ
    else None,
)
async def charge(message: Message) -> None:
    """Do what the payload says."""
    record("begin", message)
    match message.payload:
        case "exit":
            os._exit(9)
        case "hang":
            await asyncio.Event().wait()
        case "raise":
            raise ConnectionError("the shop's bank is away")
        case "relay":
            await mq.enqueue(Message(queue="orders", payload="work"))
        case _:
            await asyncio.sleep(SECONDS)
            if GO_ON is not None:
                await eventually(GO_ON.exists)
    record("end", message)
