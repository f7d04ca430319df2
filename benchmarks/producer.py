"""The producer: awaited one by one, fifty callers at once, in batches; and what sharing round trips is worth."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Final

from benchmarks.results import REPEATS, Report, Result, interleaved, ratios, report
from godwit.brokers.contract import Receipt
from godwit.brokers.memory import MemoryBroker
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec
from godwit.runtime.producer.producer import QueueProducer

QUEUE: Final = QueueName("q")
CALLERS: Final = 50
BATCH: Final = 1_000
ROUND_TRIP_SECONDS: Final = 0.001
PAYLOAD: Final = {"id": 7, "country": "NO", "text": "x" * 120}

Way = Callable[[QueueProducer, list[Message]], Awaitable[None]]


class DistantBroker(MemoryBroker):
    """A memory broker a round trip away."""

    async def publish(self, envelopes: Sequence[Envelope], *, min_replicas: int | None = None) -> list[Receipt]:
        await asyncio.sleep(ROUND_TRIP_SECONDS)
        return await super().publish(envelopes, min_replicas=min_replicas)


async def one_by_one(producer: QueueProducer, messages: list[Message]) -> None:
    for message in messages:
        await producer.enqueue(message)


async def fifty_at_once(producer: QueueProducer, messages: list[Message]) -> None:
    async def caller(first: int) -> None:
        for message in messages[first::CALLERS]:
            await producer.enqueue(message)

    await asyncio.gather(*(caller(first) for first in range(CALLERS)))


async def in_batches(producer: QueueProducer, messages: list[Message]) -> None:
    for first in range(0, len(messages), BATCH):
        await producer.enqueue_many(messages[first : first + BATCH])


def seconds_per_message(way: Way, count: int, broker_type: type[MemoryBroker] = MemoryBroker) -> float:
    async def measured() -> float:
        async with broker_type() as broker:
            await broker.declare(QueueSpec(name=QUEUE))
            producer = QueueProducer(broker, source="bench")
            messages = [Message(queue=QUEUE, type="order.created", payload=PAYLOAD) for _ in range(count)]
            gc.collect()
            started = perf_counter()
            await way(producer, messages)
            elapsed = perf_counter() - started
            if producer.stats().accepted != count:
                raise AssertionError(f"{producer.stats().accepted} of {count} messages were accepted")
            return elapsed / count

    return asyncio.run(measured())


def run(*, count: int = 20_000, distant_count: int = 500) -> Report:
    """Measure a producer on the memory broker, and with a broker a millisecond away."""
    distant_many = distant_count * 20
    costs = interleaved(
        {
            "one": lambda: seconds_per_message(one_by_one, count),
            "fifty": lambda: seconds_per_message(fifty_at_once, count),
            "batches": lambda: seconds_per_message(in_batches, count),
            "distant one": lambda: seconds_per_message(one_by_one, distant_count, DistantBroker),
            "distant fifty": lambda: seconds_per_message(fifty_at_once, distant_many, DistantBroker),
        },
        REPEATS,
    )

    def rate(name: str, measured: str) -> Result:
        return Result(name=name, unit="messages/s", repeats=[1 / cost for cost in costs[measured]])

    results = [
        rate("enqueue, awaited one by one", "one"),
        rate(f"enqueue, {CALLERS} callers at once", "fifty"),
        rate(f"enqueue_many of {BATCH:,}", "batches"),
        Result(name=f"{CALLERS} callers against one", unit="x", repeats=ratios(costs["one"], costs["fifty"])),
        rate("a round trip of 1 ms, awaited one by one", "distant one"),
        rate(f"a round trip of 1 ms, {CALLERS} callers at once", "distant fifty"),
        Result(
            name=f"a round trip of 1 ms, {CALLERS} callers against one",
            unit="x",
            repeats=ratios(costs["distant one"], costs["distant fifty"]),
            goal=25,
            floor=10,
        ),
    ]
    settings = {
        "load": f"150-byte payloads, one queue, memory broker, {count:,} messages a repeat",
        "round trip": f"a memory broker behind a sleep of {ROUND_TRIP_SECONDS * 1000:g} ms",
        "targets": "50 callers can at best share a trip by 50; preparing and storing each message bounds the ratio",
    }
    return report("producer", settings, results)
