"""Calls on a queue with very many messages, and how long each holds the event loop without a turn."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

from godwit.brokers.contract import Ack, HandBack
from godwit.core.journal.shards import shard_name
from godwit.core.names import MessageId
from tests.conformance.harness import LEASE, LONG, Harness, Q
from tests.waiting import soon

HELD_SECONDS: Final = 0.05
AT_ONCE: Final = 5_000
KINDS: Final[dict[str, dict[str, timedelta]]] = {"waiting": {}, "due": {"due": LEASE}, "expiring": {"expires": LEASE}}
"""How the messages are published: ready, due in a moment, or expiring in a moment."""


async def longest_turn(call: Awaitable[Any], *, clock: Callable[[], float] = time.thread_time) -> float:
    """Return the longest time for which a call kept the event loop from turning.

    The processor time of the loop's thread counts, which does not depend on what else the machine does.
    """
    longest = 0.0
    task = asyncio.ensure_future(call)
    while not task.done():
        began = clock()
        await asyncio.sleep(0)
        longest = max(longest, clock() - began)
    await task
    return longest


async def fill(harness: Harness, kind: str, many: int) -> None:
    """Publish so many messages of a kind."""
    await harness.declare(journal_body="off")
    for start in range(0, many, AT_ONCE):
        await harness.publish(*(f"m{number}" for number in range(start, min(start + AT_ONCE, many))), **KINDS[kind])


async def calls_on_a_large_queue(
    harness: Harness, kind: str, many: int, *, clock: Callable[[], float] = time.thread_time
) -> dict[str, float]:
    """Fill a queue, let the time of its messages come, and return how long each call held the event loop."""
    await fill(harness, kind, many)
    await harness.outage(2 * LEASE)
    gc.collect()
    gc.freeze()  # a full collection over millions of objects is Python's own pause
    try:
        return await _calls(harness, many, clock)
    finally:
        gc.unfreeze()


async def _calls(harness: Harness, many: int, clock: Callable[[], float]) -> dict[str, float]:
    broker = harness.broker
    pulled = []

    async def pull() -> None:
        pulled.extend(await harness.pull(100, lease=LONG))

    async def fresh() -> None:
        await harness.publish("fresh", priority=100)
        await soon(harness.pull(1, lease=LONG, wait=timedelta(seconds=30)), 30)

    half = MessageId(f"m{many // 2}")
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "pull": pull,
        "settle": lambda: broker.settle([Ack(one.ack_id) for one in pulled[:50]]),
        "hand back": lambda: broker.settle([HandBack(one.ack_id) for one in pulled[50:]]),
        "publish": lambda: harness.publish("another"),
        "cancel": lambda: broker.cancel(Q, half),
        "stats": broker.stats,
        "maintain": broker.maintain,
        "pull again": pull,
        "letters": harness.letters,
        "journal": lambda: broker.journal.read(shard_name(Q)),
        "trim": broker.journal.trim,
        "fresh": fresh,
    }
    return {name: await longest_turn(call(), clock=clock) for name, call in calls.items()}
