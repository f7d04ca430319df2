"""The memory engine: messages per second in batches of 100, and how the cost holds at size."""

from __future__ import annotations

import asyncio
import gc
from time import perf_counter
from typing import Final

from benchmarks.effective import memory_settings
from benchmarks.results import REPEATS, Clock, Report, Result, interleaved, ratios, report
from godwit.brokers.contract import Ack, Delivery
from godwit.brokers.memory import MemoryEngine
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.messages.envelope import Envelope
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec

BATCH: Final = 100
QUEUE: Final = QueueName("q")
GROUP: Final = GroupName("default")
BODY: Final = b"x" * 200
LEASE_MS: Final = 600_000
SPEC: Final = QueueSpec(name=QUEUE)


class Load:
    """An engine with a chosen backlog, and a way to push messages through it."""

    def __init__(self, *, ready: int = 0, leased: int = 0, keys: int = 0) -> None:
        self.engine = MemoryEngine()
        self._keys = keys
        self._made = 0
        self.engine.declare(SPEC, [GroupSpec(name=GROUP, message_ordering=bool(keys))])
        self._fill(leased)
        for _ in range(leased // BATCH):
            self.pull()
        # With ordering keys the backlog is one message behind another for each key.
        self._fill(max(ready, 2 * keys))

    def _fill(self, count: int) -> None:
        for _ in range(count // BATCH):
            self.engine.publish(self.envelopes())

    def envelopes(self, count: int = BATCH) -> list[Envelope]:
        """Return fresh sealed messages."""
        first, self._made = self._made, self._made + count
        now_ms = SYSTEM_CLOCK.now_ms()
        keys = self._keys
        return [
            Envelope(
                MessageId(f"{index:032d}"),
                QUEUE,
                BODY,
                len(BODY),
                now_ms,
                "order.created",
                50,
                f"key-{index % keys}" if keys else None,
            )
            for index in range(first, first + count)
        ]

    def pull(self) -> list[Delivery]:
        """Lease one batch."""
        return self.engine.pull(QUEUE, GROUP, worker="bench", limit=BATCH, lease_ms=LEASE_MS)

    def seconds_per_message(self, count: int, clock: Clock) -> float:
        """Publish, pull and ack `count` messages in batches; the messages are made beforehand."""
        batches = [self.envelopes() for _ in range(count // BATCH)]
        settled = 0
        gc.collect()
        started = clock()
        for batch in batches:
            self.engine.publish(batch)
            deliveries = self.pull()
            self.engine.settle([Ack(delivery.ack_id) for delivery in deliveries])
            settled += len(deliveries)
        elapsed = clock() - started
        if settled != count:
            raise AssertionError(f"{settled} of {count} messages came through")
        return elapsed / count


def run(
    *,
    count: int = 50_000,
    ready: int = 1_000_000,
    leased: int = 100_000,
    keys: int = 10_000,
    clock: Clock = perf_counter,
) -> Report:
    """Measure speed with every promise on, and the cost at size against the cost at 1,000."""
    loads = {
        "at 1,000 ready": Load(ready=1_000),
        f"at {ready:,} ready": Load(ready=ready),
        f"at {leased:,} leased": Load(ready=1_000, leased=leased),
        f"at {keys:,} ordering keys": Load(keys=keys),
    }
    costs = interleaved(
        {name: lambda load=load: load.seconds_per_message(count, clock) for name, load in loads.items()},  # type: ignore[misc]
        REPEATS,
    )
    base = costs["at 1,000 ready"]
    results = [
        Result(
            name="publish + pull + ack",
            unit="messages/s",
            repeats=[1 / cost for cost in base],
            goal=150_000,
            floor=100_000,
        )
    ]
    for name in list(loads)[1:]:
        repeats = ratios(costs[name], base)
        results.append(Result(name=f"cost {name}", unit="x", repeats=repeats, goal=1.5, floor=2, lower_is_better=True))
    settings = {
        "load": f"200-byte bodies, batches of {BATCH}, one group, one thread, {count:,} messages a repeat",
        **asyncio.run(memory_settings(SPEC)),
    }
    return report("memory", settings, results)
