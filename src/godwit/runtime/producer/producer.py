"""The producer: prepares messages and publishes them, concurrent callers together, until it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from operator import attrgetter
from random import Random
from typing import Any, Final, Self

from godwit.brokers.contract import Broker
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import BrokerClosed, BrokerError, GodwitError, InvalidMessage, QueueDraining
from godwit.core.failures.retry import RetryPolicy
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Message
from godwit.core.messages.routing import Router, Transform
from godwit.core.messages.schemas import Schemas
from godwit.core.names import MessageId, QueueName
from godwit.runtime.producer.batcher import Batcher
from godwit.runtime.producer.drains import Drains
from godwit.runtime.producer.prepare import Preparation
from godwit.runtime.producer.publisher import PUBLISH_RETRY, Publisher, PublishMetrics
from godwit.runtime.producer.stats import ProducerCounts, ProducerEntry, ProducerStats
from godwit.telemetry.tracing import Tracer

TICK: Final = timedelta(seconds=10)
UNROUTED: Final = "unrouted"
"""The queue under which messages are counted that were refused before they had one."""
SEVERAL: Final = "several queues"
"""What a span of messages for more than one queue names."""


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
        self._source, self._tracer = source, tracer
        self._preparation = Preparation(
            source=source,
            router=router or Router(),
            schemas=schemas if schemas is not None else Schemas(),
            transforms=transforms if transforms is not None else {},
            headers=headers,
        )
        self._sleep = sleep
        self._counts = ProducerCounts(source, clock)
        self._publisher = Publisher(
            broker,
            self._counts,
            source=source,
            metrics=metrics,
            retry=retry,
            sleep=sleep,
            random=random or Random(),
        )
        self._batcher = Batcher(self._publisher.publish, broker.publishes_at_once)
        self._entry = ProducerEntry(broker.shared, self._counts)
        self._drains = Drains(broker.shared)
        self._closed = False
        self._calls = 0
        self._idle = asyncio.Event()

    def enqueue(
        self,
        message: Message,
        *,
        scheduled_at: datetime | None = None,
        expires_at: datetime | None = None,
        min_replicas: int | None = None,
    ) -> Coroutine[Any, Any, MessageId]:
        """Publish one message and return its id; the two times override the message's own.

        `min_replicas` counts instead of the queue's; such a message is published on its own.
        """
        enqueuing = self._enqueue if self._tracer is None or not isinstance(message, Message) else self._enqueue_traced
        return enqueuing(message, scheduled_at, expires_at, min_replicas)

    async def _enqueue_traced(
        self,
        message: Message,
        scheduled_at: datetime | None,
        expires_at: datetime | None,
        min_replicas: int | None,
    ) -> MessageId:
        assert self._tracer is not None  # noqa: S101
        with self._tracer.publishing([message], self._preparation.place_of(message)) as (carrying,):
            return await self._enqueue(carrying, scheduled_at, expires_at, min_replicas)

    async def _enqueue(
        self,
        message: Message,
        scheduled_at: datetime | None,
        expires_at: datetime | None,
        min_replicas: int | None,
    ) -> MessageId:
        self._enter()
        queue = ""
        try:
            envelope = self._preparation.prepare(message, scheduled_at, expires_at)
            queue = envelope.queue
            if not self._drains.is_known_for_long():
                await self._drains.refresh()
            self._drains.check((queue,))
            if min_replicas is None:
                receipt = await self._batcher.publish(envelope)
            else:
                (receipt,) = await self._publisher.publish((envelope,), min_replicas=min_replicas)
        except Exception as error:
            self._publisher.failed(queue or _named(message), error)
            raise
        finally:
            self._leave()
        return receipt.id

    async def enqueue_many(self, messages: Iterable[Message], *, min_replicas: int | None = None) -> list[MessageId]:
        """Publish messages and return their ids, in order; one that cannot be accepted refuses them all.

        When the broker stops half-way, `PartialPublish` names the ids accepted; publishing all again is safe.
        """
        if self._tracer is None:
            return await self._enqueue_many(messages, min_replicas)
        known = list(messages)
        if not known or not all(isinstance(message, Message) for message in known):
            return await self._enqueue_many(known, min_replicas)
        places = {self._preparation.place_of(message) for message in known}
        with self._tracer.publishing(known, places.pop() if len(places) == 1 else SEVERAL) as carrying:
            return await self._enqueue_many(carrying, min_replicas)

    async def _enqueue_many(self, messages: Iterable[Message], min_replicas: int | None) -> list[MessageId]:
        self._enter()
        try:
            envelopes = self._prepared(messages)
            if envelopes:
                await self._refuse_drained(envelopes)
                # The broker stores runs of one queue as chunks; the order inside a queue stays.
                by_queue = sorted(envelopes, key=attrgetter("queue"))
                await self._publisher.store(by_queue, min_replicas=min_replicas)
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

    async def close(self) -> None:
        """Take no more messages, and return when those under way have their outcome."""
        self._closed = True
        while self._calls:
            self._idle.clear()
            await self._idle.wait()
        await self._batcher.flush()
        await self._drains.close()
        with suppress(BrokerError):  # the entry ends by itself
            await self._entry.remove()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _prepared(self, messages: Iterable[Message]) -> list[Envelope]:
        """Prepare a batch; one bad message refuses them all and the error names its place."""
        known = messages if isinstance(messages, list | tuple) else list(messages)
        envelopes: list[Envelope] = []
        try:
            self._preparation.prepare_all(known, envelopes)
        except Exception as error:
            place = len(envelopes)
            self._publisher.failed(_named(known[place]), error)
            if isinstance(error, InvalidMessage):
                raise error.at(place) from error
            if isinstance(error, GodwitError):
                error.add_note(f"It is message {place} of the batch; none of them was published.")
            raise
        return envelopes

    async def _refuse_drained(self, envelopes: Sequence[Envelope]) -> None:
        if not self._drains.is_known:
            await self._drains.refresh()
        try:
            self._drains.check(envelope.queue for envelope in envelopes)
        except QueueDraining as error:
            self._publisher.failed(error.queue, error, len(envelopes))
            raise

    def _enter(self) -> None:
        if self._closed:
            raise BrokerClosed(f"Producer {self._source!r}")
        self._calls += 1

    def _leave(self) -> None:
        self._calls -= 1
        if self._closed and not self._calls:
            self._idle.set()


def _named(message: Message) -> str:
    """Return where a refused message wanted to go; what was passed in may be anything."""
    named = isinstance(message, Message) and isinstance(message.queue, str) and message.queue
    return named or UNROUTED
