"""The load of the SQLite benchmarks: fresh messages, published and consumed in batches."""

from __future__ import annotations

import gc
from datetime import timedelta
from time import perf_counter, process_time
from typing import Final, NamedTuple

from godwit.brokers.contract import Ack
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.messages.envelope import Envelope
from godwit.core.names import GroupName, QueueName, new_message_id
from godwit.core.queues import QueueSpec

BATCH: Final = 100
QUEUE: Final = QueueName("q")
GROUP: Final = GroupName("default")
BODY: Final = b"x" * 200
LEASE: Final = timedelta(minutes=10)
SPEC: Final = QueueSpec(name=QUEUE)


class Cost(NamedTuple):
    """Of one message, in seconds: by the clock on the wall, and of the processor (all threads, user and system)."""

    wall: float
    processor: float


def envelopes(count: int = BATCH) -> list[Envelope]:
    """Return fresh sealed messages."""
    now_ms = SYSTEM_CLOCK.now_ms()
    return [Envelope(new_message_id(), QUEUE, BODY, len(BODY), now_ms, "order.created") for _ in range(count)]


async def publish(broker: SqliteBroker, count: int) -> Cost:
    """Return what one message costs to publish; the messages are made beforehand."""
    batches = [envelopes() for _ in range(count // BATCH)]
    gc.collect()
    started, busy = perf_counter(), process_time()
    for batch in batches:
        await broker.publish(batch)
    return Cost((perf_counter() - started) / count, (process_time() - busy) / count)


async def consume(broker: SqliteBroker, count: int) -> Cost:
    """Return what one message costs to pull and ack."""
    gc.collect()
    settled = 0
    started, busy = perf_counter(), process_time()
    for _ in range(count // BATCH):
        deliveries = await broker.pull(QUEUE, GROUP, worker="bench", limit=BATCH, lease=LEASE)
        refused = await broker.settle([Ack(delivery.ack_id) for delivery in deliveries])
        settled += len(deliveries) - len(refused)
    cost = Cost((perf_counter() - started) / count, (process_time() - busy) / count)
    if settled != count:
        raise AssertionError(f"{settled} of {count} messages came through")
    return cost
