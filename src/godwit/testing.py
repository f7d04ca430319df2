"""Help for tests of applications: a manager in memory, a clock set by hand, and a worker that runs until all is done.

    mq = in_memory()

    @mq.consumer("orders")
    async def charge(message): ...

    async with mq:
        await mq.enqueue(Message(queue="orders", payload={"id": 7}))
        ran = await run_until_empty(mq)

    assert ran.handled == 1
    assert_published(mq, "orders", type="message", payload={"id": 7})

Time stands still but for `mq.clock`; delays and retries that lie ahead are reached by moving it, not by waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any, Final

import msgspec

from godwit.brokers.contract import Place, QueueStats, Receipt
from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import ManualClock, milliseconds
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Message
from godwit.core.settings import Settings
from godwit.manager import MessageQueueManager
from godwit.runtime.worker.worker import Worker

LONGEST_RUN: Final = timedelta(days=366)
_TURNS_WITHOUT_CHANGE: Final = 20


class RecordingBroker(MemoryBroker):
    """A memory broker that remembers what was published to it."""

    def __init__(self, *, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.published: list[Envelope] = []

    async def publish(self, envelopes: Sequence[Envelope], *, min_replicas: int | None = None) -> list[Receipt]:
        """Publish, and remember what was fresh."""
        receipts = await super().publish(envelopes, min_replicas=min_replicas)
        self.published += [one for one, receipt in zip(envelopes, receipts, strict=True) if receipt.fresh]
        return receipts


class InMemoryManager(MessageQueueManager):
    """A manager on a recording memory broker with a clock of its own."""

    def __init__(self, settings: Settings | None = None, *, seed: int = 0, random: Random | None = None) -> None:
        self.clock = ManualClock()
        self.recorder = RecordingBroker(clock=self.clock)
        super().__init__(
            self.recorder,
            settings=settings or Settings(broker_url="memory://"),
            source="test",
            clock=self.clock,
            random=random or Random(seed),
        )


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did: handler runs that ended, the time it took by the manager's clock, what is left."""

    handled: int
    took: timedelta
    stats: tuple[QueueStats, ...]

    @property
    def dead(self) -> int:
        """Dead letters in all queues and groups."""
        return sum(group.dead for queue in self.stats for group in queue.groups)


def in_memory(settings: Settings | None = None, *, seed: int = 0, random: Random | None = None) -> InMemoryManager:
    """Return a manager for tests; `seed`, or a `random` of your own, decides about jitter."""
    return InMemoryManager(settings, seed=seed, random=random)


async def run_until_empty(mq: InMemoryManager, *, longest: timedelta = LONGEST_RUN) -> Ran:
    """Run the registered consumers until nothing waits, moving the clock to whatever is due next.

    Stops after `longest` by the manager's clock; what is left is in the answer.
    """
    worker = mq.worker()
    running = asyncio.create_task(worker.run())
    started = mq.clock.now_ms()
    served = {(queue, consumer.group) for consumer in mq.consumers for queue in consumer.queues}
    try:
        while not running.done():
            await _settled(mq, worker, served)
            due = [mq.recorder.engine.next_due_ms(*place) for place in served]
            due_ms = min(filter(None, [*due, worker.held_back_until_ms()]), default=None)
            if not await _open(mq, served) or due_ms is None or due_ms - started > milliseconds(longest):
                break
            mq.clock.advance(timedelta(milliseconds=max(1, due_ms - mq.clock.now_ms())))
            await mq.broker.maintain()
            worker.nudge()
    finally:
        worker.stop()
        await running
    took = timedelta(milliseconds=mq.clock.now_ms() - started)
    return Ran(handled=worker.counts.processed, took=took, stats=tuple(await mq.broker.stats()))


async def _settled(mq: InMemoryManager, worker: Worker, served: set[Place]) -> None:
    """Give the worker turns until it has nothing in hand and nothing it may pull."""
    quiet = 0
    while quiet < _TURNS_WITHOUT_CHANGE:
        may_pull = worker.held_back_until_ms() is None and any(mq.recorder.engine.ready(*place) for place in served)
        quiet = quiet + 1 if worker.is_idle() and not may_pull else 0
        # A handler may wait for real things, so let real time pass too once the loop has nothing else to do.
        await asyncio.sleep(0 if quiet else 0.0005)


async def _open(mq: InMemoryManager, served: set[Place]) -> int:
    return sum(
        group.depth for queue in await mq.broker.stats() for group in queue.groups if (queue.name, group.name) in served
    )


def published(mq: InMemoryManager, queue: str | None = None) -> list[Message]:
    """Return the messages published so far, in order."""
    return [envelope.open() for envelope in mq.recorder.published if queue in (None, envelope.queue)]


def assert_published(mq: InMemoryManager, queue: str, *, count: int | None = None, **fields: Any) -> None:
    """Fail unless a message with these fields was published (with `count`: exactly so many)."""
    messages = published(mq, queue)
    matching = [one for one in messages if all(getattr(one, name) == value for name, value in fields.items())]
    enough = bool(matching) if count is None else len(matching) == count
    if not enough:
        wanted = "a message" if count is None else f"{count} messages"
        shown = "\n".join(f"  {message}" for message in messages[:20]) or "  nothing"
        raise AssertionError(f"expected {wanted} in {queue!r} with {fields}, found {len(matching)} among:\n{shown}")


def assert_nothing_published(mq: InMemoryManager, queue: str | None = None) -> None:
    """Fail when anything was published."""
    messages = published(mq, queue)
    if messages:
        raise AssertionError(f"expected nothing to be published, found {len(messages)}, the first: {messages[0]}")
