"""What a producer has done so far, how fast it goes, and where other processes read it.

Key of the shared values: `producer/<name>#<instance>`, written by the producer's `tick`, gone when it falls silent.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from datetime import timedelta
from secrets import token_hex
from typing import Final

import msgspec

from godwit.brokers.contract import Shared
from godwit.core.clock import Clock
from godwit.core.names import QueueName
from godwit.core.shared_keys import PRODUCER, producer_key
from godwit.telemetry.window import Window

SILENT_AFTER: Final = timedelta(seconds=30)
RATE_OVER: Final = timedelta(minutes=1)
TOGETHER: Final = 64
"""Messages accepted alone that are noted before they are counted together; a reader counts them first."""


class ProducerStats(msgspec.Struct, frozen=True, kw_only=True):
    """A producer: since when, how many messages, and how many a second over the last minute.

    `accepted` counts fresh messages, `duplicates` those the broker had before, `failed` those whose caller got an
    error.
    """

    name: str
    instance: str
    started_at_ms: int
    accepted: int
    duplicates: int
    failed: int
    per_second: float
    queues: dict[QueueName, int]


_decoder = msgspec.json.Decoder(ProducerStats)


class ProducerCounts:
    """Counts what one producer does."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.instance = f"{os.getpid()}-{token_hex(3)}"
        self._started_at_ms = clock.now_ms()
        self._window = Window(columns=1, clock=clock, since_ms=self._started_at_ms, length=RATE_OVER)
        self._queues: Counter[QueueName] = Counter()
        self._accepted = self._duplicates = self._failed = 0
        self._clock = clock
        self._alone: deque[tuple[QueueName, int]] = deque()

    def accepted(self, queue: QueueName, count: int) -> None:
        """Count fresh messages of one queue."""
        self._count_alone()  # they came before
        self._accepted += count
        self._queues[queue] += count
        self._window.sums[self._window.row()] += count

    def accepted_alone(self, queue: QueueName) -> None:
        """Count one fresh message, later and with others: see `QueueMetricsCollector.published_one`."""
        self._alone.append((queue, self._clock.now_ms()))
        if len(self._alone) >= TOGETHER:
            self._count_alone()

    def _count_alone(self) -> None:
        alone, window = self._alone, self._window
        while alone:
            queue, at_ms = alone.popleft()
            self._accepted += 1
            self._queues[queue] += 1
            window.sums[window.row(at_ms)] += 1

    def repeated(self, count: int) -> None:
        """Count messages the broker had before."""
        self._duplicates += count

    def failed(self, count: int) -> None:
        """Count messages whose caller got an error."""
        self._failed += count

    def stats(self) -> ProducerStats:
        """Return the numbers as of now."""
        self._count_alone()
        return ProducerStats(
            name=self.name,
            instance=self.instance,
            started_at_ms=self._started_at_ms,
            accepted=self._accepted,
            duplicates=self._duplicates,
            failed=self._failed,
            per_second=self._window.totals()[0] / self._window.seconds(),
            queues=dict(self._queues),
        )


class ProducerEntry:
    """A producer's place among the shared values."""

    def __init__(self, shared: Shared, counts: ProducerCounts) -> None:
        self._shared, self._counts = shared, counts
        self._key = producer_key(counts.name, counts.instance)
        self._version: int | None = None

    async def write(self) -> None:
        """Tell the others; an entry that ran out in the meantime is made anew."""
        value = msgspec.json.encode(self._counts.stats())
        self._version = await self._shared.put(self._key, value, expected=self._version, ttl=SILENT_AFTER)
        if self._version is None:
            present = await self._shared.get(self._key)
            expected = present.version if present is not None else None
            self._version = await self._shared.put(self._key, value, expected=expected, ttl=SILENT_AFTER)

    async def remove(self) -> None:
        """Leave the list, when it was ever on it."""
        if self._version is not None:
            await self._shared.delete(self._key)
            self._version = None


async def producers(shared: Shared) -> list[ProducerStats]:
    """Return the producers of all processes that wrote their entry lately, by name."""
    entries = await shared.scan(PRODUCER)
    return [_decoder.decode(entries[key].value) for key in sorted(entries)]
