"""An application with every form of handler, for tests that stop real workers at any moment.

Environment: as for `sample.py`, and SAMPLE_CONFIG (a godwit.toml), SAMPLE_IMPORT_SECONDS (how long its import takes).
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta

from godwit.core.failures.retry import RetryPolicy, Strategy
from godwit.core.messages.message import Message
from godwit.manager import MessageQueueManager
from tests.runtime.sample_app import SECONDS, record

time.sleep(float(os.environ.get("SAMPLE_IMPORT_SECONDS", "0")))

mq = (
    MessageQueueManager.from_config(os.environ["SAMPLE_CONFIG"])
    if "SAMPLE_CONFIG" in os.environ
    else MessageQueueManager.from_url()
)
LEASE = timedelta(seconds=1)
AGAIN = RetryPolicy(max_attempts=3, strategy=Strategy.IMMEDIATE)


@mq.consumer("orders", concurrency=5, lease=LEASE, retry_policy=AGAIN)
async def in_the_loop(message: Message) -> None:
    """Take a while, waiting."""
    record("begin", message)
    if message.payload == "block":
        time.sleep(SECONDS)  # noqa: ASYNC251 # what a careless handler does
    else:
        await asyncio.sleep(SECONDS)
    record("end", message)


@mq.consumer("letters", concurrency=5, lease=LEASE, retry_policy=AGAIN)
def in_a_thread(message: Message) -> None:
    """Take a while, in a thread."""
    record("begin", message)
    time.sleep(SECONDS)
    record("end", message)


@mq.consumer("parcels", batch=10, batch_timeout=timedelta(seconds=1.5), lease=timedelta(seconds=10), retry_policy=AGAIN)
async def together(messages: list[Message]) -> None:
    """Take a while, several at once."""
    for message in messages:
        record("begin", message)
    await asyncio.sleep(SECONDS)
    for message in messages:
        record("end", message)
