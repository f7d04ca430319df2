"""From envelopes to the broker: round trips that are tried again, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from operator import attrgetter
from random import Random
from time import perf_counter
from typing import Final, Protocol

from godwit.brokers.contract import Receipt, Transport
from godwit.core.errors import (
    BrokerClosed,
    BrokerError,
    PartialPublish,
    StorageCorrupt,
    StorageFull,
    StorageTooNew,
    StorageUnsupported,
)
from godwit.core.failures.retry import RetryPolicy, execute_with_retry
from godwit.core.messages.envelope import Envelope
from godwit.runtime.producer.stats import ProducerCounts

PUBLISH_RETRY: Final = RetryPolicy(
    max_attempts=3, initial_delay=timedelta(milliseconds=100), max_delay=timedelta(seconds=1), jitter=0.1
)

_QUEUE: Final = attrgetter("queue")
_TYPE: Final = attrgetter("type")
_FRESH: Final = attrgetter("fresh")
_QUEUE_AND_TYPE: Final = attrgetter("queue", "type")
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

    def published_one(self, queue: str, type: str, producer: str, seconds: float) -> None:
        """Do all three for a message that was accepted alone."""
        ...

    def publish_failed(self, queue: str, error: BaseException | str, count: int = 1) -> None:
        """Count messages whose publish failed."""
        ...


class Publisher:
    """Publishes for one producer."""

    def __init__(
        self,
        broker: Transport,
        counts: ProducerCounts,
        *,
        source: str,
        metrics: PublishMetrics | None,
        retry: RetryPolicy,
        sleep: Callable[[float], Awaitable[None]],
        random: Random,
    ) -> None:
        self._broker, self._counts, self._source, self._metrics = broker, counts, source, metrics
        self._retry, self._sleep, self._random = retry, sleep, random

    async def publish(self, envelopes: Sequence[Envelope], *, min_replicas: int | None = None) -> list[Receipt]:
        """Publish envelopes; what the broker cannot do at the moment is tried again, under the same ids."""
        began = perf_counter()
        try:
            receipts = await self._broker.publish(envelopes, min_replicas=min_replicas)
        except PartialPublish as error:
            self._count(envelopes[: len(error.accepted)], None, perf_counter() - began)
            raise
        except BrokerError as error:
            return await execute_with_retry(
                lambda: self._round_trip(envelopes, min_replicas),
                self._retry,
                sleep=self._sleep,
                random=self._random,
                retryable=is_passing,
                failed=error,
            )
        self._count(envelopes, receipts, perf_counter() - began)
        return receipts

    async def store(self, envelopes: list[Envelope], *, min_replicas: int | None = None) -> None:
        """Publish a batch, going on after the last message accepted when the broker recovers."""
        done = 0

        async def rest() -> None:
            nonlocal done
            try:
                await self._round_trip(envelopes[done:], min_replicas)
            except PartialPublish as error:
                done += len(error.accepted)
                raise (error.__cause__ if isinstance(error.__cause__, Exception) else error) from None

        try:
            await execute_with_retry(rest, self._retry, sleep=self._sleep, random=self._random, retryable=is_passing)
        except Exception as error:
            for queue, count in Counter(envelope.queue for envelope in envelopes[done:]).items():
                self.failed(queue, error, count)
            if not done:
                raise
            raise PartialPublish(tuple(envelope.id for envelope in envelopes[:done]), str(error)) from error

    async def _round_trip(self, envelopes: Sequence[Envelope], min_replicas: int | None) -> list[Receipt]:
        began = perf_counter()
        try:
            receipts = await self._broker.publish(envelopes, min_replicas=min_replicas)
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
        if receipts is None or all(map(_FRESH, receipts)):
            newly_accepted = envelopes
        else:
            newly_accepted = [one for one, its in zip(envelopes, receipts, strict=True) if its.fresh]
        accepted = len(newly_accepted)
        fresh = (
            Counter(map(_QUEUE_AND_TYPE, newly_accepted))
            if _differ(newly_accepted)
            else {_QUEUE_AND_TYPE(newly_accepted[0]): accepted}
        )
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
        for queue in {*map(_QUEUE, envelopes)}:
            self._metrics.published(queue, seconds)

    def _count_one(self, envelope: Envelope, *, fresh: bool, seconds: float) -> None:
        queue, metrics = envelope.queue, self._metrics
        if fresh:
            self._counts.accepted_alone(queue)
        else:
            self._counts.repeated(1)
        if metrics is None:
            return
        if fresh:
            metrics.published_one(queue, envelope.type, self._source, seconds)
        else:
            metrics.published(queue, seconds)

    def failed(self, queue: str, error: Exception, count: int = 1) -> None:
        """Count messages that were refused, here or by the broker."""
        self._counts.failed(count)
        if self._metrics is not None:
            self._metrics.publish_failed(queue, error, count)


def _differ(envelopes: Sequence[Envelope]) -> bool:
    """Say whether envelopes are not all of one queue and type, as those of a call nearly always are."""
    return len({*map(_QUEUE, envelopes)}) != 1 or len({*map(_TYPE, envelopes)}) != 1


def is_passing(error: Exception) -> bool:
    """Say whether the broker may carry out the same call in a moment."""
    return isinstance(error, BrokerError) and not isinstance(error, _LASTING)
