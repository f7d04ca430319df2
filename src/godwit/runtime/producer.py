"""The producer: prepares messages and publishes them, concurrent callers together; retries, counts, and says so."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from time import perf_counter
from typing import Final, Protocol, Self

from godwit.brokers.contract import Broker, Receipt
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.envelope import Envelope
from godwit.core.errors import (
    BrokerClosed,
    BrokerError,
    GodwitError,
    InvalidMessage,
    PartialPublish,
    QueueDraining,
    StorageCorrupt,
    StorageFull,
    StorageTooNew,
    StorageUnsupported,
)
from godwit.core.message import Message
from godwit.core.names import MessageId, QueueName
from godwit.core.retry import RetryPolicy, execute_with_retry
from godwit.core.routing import Router, Transform
from godwit.core.schemas import Schemas
from godwit.runtime.batching import Batcher
from godwit.runtime.draining import Drains
from godwit.runtime.preparing import Preparation
from godwit.runtime.producer_stats import ProducerCounts, ProducerEntry, ProducerStats
from godwit.telemetry.tracing import Tracer

PUBLISH_RETRY: Final = RetryPolicy(
    max_attempts=3, initial_delay=timedelta(milliseconds=100), max_delay=timedelta(seconds=1), jitter=0.1
)
TICK: Final = timedelta(seconds=10)
UNROUTED: Final = "unrouted"
"""The queue under which messages are counted that were refused before they had one."""
SEVERAL: Final = "several queues"
"""What a span of messages for more than one queue names."""

_LASTING: Final = (BrokerClosed, StorageCorrupt, StorageFull, StorageTooNew, StorageUnsupported)


class PublishMetrics(Protocol):
    """Where a producer reports; `godwit.telemetry.metrics.QueueMetricsCollector` is one."""

    def enqueued(self, queue: str, type: str, count: int = 1) -> None:
        """Count accepted messages of one type."""
        ...

    def produced(self, producer: str, count: int) -> None:
        """Count accepted messages of one producer."""
        ...

    def published(self, queue: str, seconds: float) -> None:
        """Take the time of one round trip."""
        ...

    def publish_failed(self, queue: str, error: BaseException | str, count: int = 1) -> None:
        """Count messages whose publish failed."""
        ...


class QueueProducer:
    """Publishes messages for one event loop; concurrent `enqueue` calls share round trips.

    `source` is its name, and the `metadata.source` of messages that have none. `headers` is called for every message
    and adds to those it has (trace context). The broker is the caller's: `close` flushes, but does not close it.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        source: str = "godwit",
        router: Router | None = None,
        schemas: Schemas | None = None,
        transforms: Mapping[QueueName, Transform] | None = None,
        headers: Callable[[], Mapping[str, str]] | None = None,
        metrics: PublishMetrics | None = None,
        tracer: Tracer | None = None,
        retry: RetryPolicy = PUBLISH_RETRY,
        clock: Clock = SYSTEM_CLOCK,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Random | None = None,
    ) -> None:
        self._broker, self._source, self._metrics, self._tracer = broker, source, metrics, tracer
        self._preparation = Preparation(
            source=source,
            router=router or Router(),
            schemas=schemas if schemas is not None else Schemas(),
            transforms=transforms if transforms is not None else {},
            headers=headers,
        )
        self._retry, self._sleep, self._random = retry, sleep, random or Random()
        self._batcher = Batcher(self._published)
        self._counts = ProducerCounts(source, clock)
        self._entry = ProducerEntry(broker.shared, self._counts)
        self._drains = Drains(broker.shared)
        self._closed = False
        self._calls = 0
        self._idle = asyncio.Event()

    async def enqueue(
        self, message: Message, *, scheduled_at: datetime | None = None, expires_at: datetime | None = None
    ) -> MessageId:
        """Publish one message and return its id; the two times override the message's own."""
        if self._tracer is None or not isinstance(message, Message):
            return await self._enqueue(message, scheduled_at, expires_at)
        with self._tracer.publishing([message], self._preparation.place_of(message)) as (carrying,):
            return await self._enqueue(carrying, scheduled_at, expires_at)

    async def _enqueue(self, message: Message, scheduled_at: datetime | None, expires_at: datetime | None) -> MessageId:
        self._enter()
        queue = ""
        try:
            envelope = self._preparation.prepare(message, scheduled_at, expires_at)
            queue = envelope.queue
            if not self._drains.is_known:
                await self._drains.refresh()
            self._drains.check((envelope.queue,))
            receipt = await self._batcher.publish(envelope)
        except Exception as error:
            self._failed(queue or _named(message), error)
            raise
        finally:
            self._leave()
        return receipt.id

    async def enqueue_many(self, messages: Iterable[Message]) -> list[MessageId]:
        """Publish messages and return their ids, in order; one that cannot be accepted refuses them all.

        When the broker stops half-way, `PartialPublish` names the ids accepted; publishing all again is safe.
        """
        if self._tracer is None:
            return await self._enqueue_many(messages)
        known = list(messages)
        if not known or not all(isinstance(message, Message) for message in known):
            return await self._enqueue_many(known)
        places = {self._preparation.place_of(message) for message in known}
        with self._tracer.publishing(known, places.pop() if len(places) == 1 else SEVERAL) as carrying:
            return await self._enqueue_many(carrying)

    async def _enqueue_many(self, messages: Iterable[Message]) -> list[MessageId]:
        self._enter()
        try:
            envelopes = [self._prepared(index, message) for index, message in enumerate(messages)]
            if envelopes:
                await self._refuse_drained(envelopes)
                # The broker stores runs of one queue as chunks; the order inside a queue stays.
                await self._stored(sorted(envelopes, key=lambda envelope: envelope.queue))
        finally:
            self._leave()
        return [envelope.id for envelope in envelopes]

    @property
    def closed(self) -> bool:
        """Whether it takes no more messages."""
        return self._closed

    def prepare(self, message: Message) -> Envelope:
        """Return a message as it would be published; it is not."""
        return self._preparation.prepare(message)

    def stats(self) -> ProducerStats:
        """Return what it has done so far, and how fast it goes."""
        return self._counts.stats()

    async def tick(self) -> None:
        """Tell the other processes that this producer exists, with its numbers."""
        await self._entry.write()

    async def run(self, *, every: timedelta = TICK) -> None:
        """Keep telling until it is closed; a broker that does not answer is told next time."""
        while not self._closed:
            with suppress(BrokerError):
                await self.tick()
            await self._sleep(every.total_seconds())

    async def close(self) -> None:
        """Take no more messages, and return when those under way have their outcome."""
        self._closed = True
        while self._calls:
            self._idle.clear()
            await self._idle.wait()
        await self._batcher.flush()
        with suppress(BrokerError):  # the entry ends by itself
            await self._entry.remove()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _prepared(self, index: int, message: Message) -> Envelope:
        try:
            return self._preparation.prepare(message)
        except Exception as error:
            self._failed(_named(message), error)
            if isinstance(error, InvalidMessage):
                raise error.at(index) from error
            if isinstance(error, GodwitError):
                error.add_note(f"It is message {index} of the batch; none of them was published.")
            raise

    async def _refuse_drained(self, envelopes: Sequence[Envelope]) -> None:
        if not self._drains.is_known:
            await self._drains.refresh()
        try:
            self._drains.check(dict.fromkeys(envelope.queue for envelope in envelopes))
        except QueueDraining as error:
            self._failed(error.queue, error, len(envelopes))
            raise

    async def _published(self, envelopes: Sequence[Envelope]) -> list[Receipt]:
        """Publish for the batcher; what the broker cannot do at the moment is tried again, under the same ids."""
        return await execute_with_retry(
            lambda: self._round_trip(envelopes),
            self._retry,
            sleep=self._sleep,
            random=self._random,
            retryable=is_passing,
        )

    async def _stored(self, envelopes: list[Envelope]) -> None:
        """Publish a batch, going on after the last message accepted when the broker recovers."""
        done = 0

        async def rest() -> None:
            nonlocal done
            try:
                await self._round_trip(envelopes[done:])
            except PartialPublish as error:
                done += len(error.accepted)
                raise (error.__cause__ if isinstance(error.__cause__, Exception) else error) from None

        try:
            await execute_with_retry(rest, self._retry, sleep=self._sleep, random=self._random, retryable=is_passing)
        except Exception as error:
            for queue, count in Counter(envelope.queue for envelope in envelopes[done:]).items():
                self._failed(queue, error, count)
            if not done:
                raise
            raise PartialPublish(tuple(envelope.id for envelope in envelopes[:done]), str(error)) from error

    async def _round_trip(self, envelopes: Sequence[Envelope]) -> list[Receipt]:
        began = perf_counter()
        try:
            receipts = await self._broker.publish(envelopes)
        except PartialPublish as error:
            self._count(envelopes[: len(error.accepted)], None, perf_counter() - began)
            raise
        self._count(envelopes, receipts, perf_counter() - began)
        return receipts

    # Counting.

    def _count(self, envelopes: Sequence[Envelope], receipts: list[Receipt] | None, seconds: float) -> None:
        if len(envelopes) == 1:
            self._count_one(envelopes[0], fresh=receipts is None or receipts[0].fresh, seconds=seconds)
            return
        fresh = Counter(
            [
                (envelope.queue, envelope.type)
                for at, envelope in enumerate(envelopes)
                if receipts is None or receipts[at].fresh
            ]
        )
        accepted = fresh.total()
        if accepted < len(envelopes):
            self._counts.repeated(len(envelopes) - accepted)
        for (queue, _), count in fresh.items():
            self._counts.accepted(queue, count)
        if self._metrics is None:
            return
        for (queue, message_type), count in fresh.items():
            self._metrics.enqueued(queue, message_type, count)
        if accepted:
            self._metrics.produced(self._source, accepted)
        for queue in {envelope.queue for envelope in envelopes}:
            self._metrics.published(queue, seconds)

    def _count_one(self, envelope: Envelope, *, fresh: bool, seconds: float) -> None:
        queue, metrics = envelope.queue, self._metrics
        if fresh:
            self._counts.accepted(queue, 1)
        else:
            self._counts.repeated(1)
        if metrics is None:
            return
        if fresh:
            metrics.enqueued(queue, envelope.type, 1)
            metrics.produced(self._source, 1)
        metrics.published(queue, seconds)

    def _failed(self, queue: str, error: Exception, count: int = 1) -> None:
        self._counts.failed(count)
        if self._metrics is not None:
            self._metrics.publish_failed(queue, error, count)

    def _enter(self) -> None:
        if self._closed:
            raise BrokerClosed(f"Producer {self._source!r}")
        self._calls += 1

    def _leave(self) -> None:
        self._calls -= 1
        if not self._calls:
            self._idle.set()


def _named(message: Message) -> str:
    """Return where a refused message wanted to go; what was passed in may be anything."""
    return message.queue or UNROUTED if isinstance(message, Message) else UNROUTED


def is_passing(error: Exception) -> bool:
    """Say whether the broker may carry out the same call in a moment."""
    return isinstance(error, BrokerError) and not isinstance(error, _LASTING)
