"""Heartbeats: each worker says that it is alive and how it does, one value per place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Final

import msgspec

from godwit.brokers.contract import Place, Shared
from godwit.core.clock import Clock, milliseconds
from godwit.core.names import GroupName, QueueName
from godwit.core.shared_keys import INSTANCE, instance_key, instances_of

KEPT_FOR: Final = timedelta(hours=1)
MISSED_BEATS: Final = 3
STOPPED: Final = "stopped"
PAUSED: Final = "paused"


class InstanceStatus(StrEnum):
    """How a consumer instance does."""

    ACTIVE = "active"
    INACTIVE = "inactive"
    FAILED = "failed"


class ConsumerInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it serves one group of one queue."""

    id: str
    queue: QueueName
    group: GroupName
    status: InstanceStatus
    last_heartbeat_ms: int
    interval_ms: int
    started_ms: int
    processed_count: int = 0
    error_count: int = 0
    average_processing_time_ms: float = 0.0
    detail: str | None = None
    concurrency: int = 0
    breaker: str = ""
    types: tuple[str, ...] | None = None
    """The types of messages that it handles; None for all."""

    def seen(self, now_ms: int) -> ConsumerInstance:
        """Return it as an onlooker sees it: one whose heartbeat is missing has failed."""
        silent = now_ms - self.last_heartbeat_ms > MISSED_BEATS * self.interval_ms
        if silent and self.detail != STOPPED:
            return msgspec.structs.replace(self, status=InstanceStatus.FAILED, detail="no heartbeat")
        return self

    def is_forgotten(self, now_ms: int) -> bool:
        """Say whether it has been missed for as long as it took to miss it: it is no trouble of the others any more."""
        return now_ms - self.last_heartbeat_ms > 2 * MISSED_BEATS * self.interval_ms


State = tuple[InstanceStatus, str | None]
"""How an instance does, and why."""


class Tally:
    """What one worker did at one place."""

    __slots__ = ("errors", "processed", "run_ms")

    def __init__(self) -> None:
        self.processed = self.errors = self.run_ms = 0

    def count(self, handled: int, *, run_ms: int, failed: int = 0) -> None:
        """Count handled messages, and how many of them failed."""
        self.processed += handled
        self.errors += failed
        self.run_ms += run_ms


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker serves one group of one queue: slots, the breaker's name, the types it handles (None for all)."""

    concurrency: int = 0
    breaker: str = ""
    types: tuple[str, ...] | None = None


_UNSAID: Final = Served()


class Heartbeat:
    """Writes a worker's state into the broker's shared values."""

    def __init__(
        self,
        shared: Shared,
        worker: str,
        tallies: Mapping[Place, Tally],
        *,
        interval: timedelta,
        clock: Clock,
        served: Mapping[Place, Served] | None = None,
    ) -> None:
        self._shared = shared
        self._worker = worker
        self._tallies = tallies
        self._served = served or {}
        self._interval_ms = milliseconds(interval)
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._versions: dict[Place, int] = {}

    async def beat(self, states: Mapping[Place, State]) -> None:
        """Say once how this worker does; it is active where `states` says nothing else."""
        now_ms = self._clock.now_ms()
        for (queue, group), tally in self._tallies.items():
            place = (queue, group)
            served = self._served.get(place, _UNSAID)
            status, detail = states.get(place, (InstanceStatus.ACTIVE, None))
            instance = ConsumerInstance(
                id=self._worker,
                queue=queue,
                group=group,
                status=status,
                last_heartbeat_ms=now_ms,
                interval_ms=self._interval_ms,
                started_ms=self._started_ms,
                processed_count=tally.processed,
                error_count=tally.errors,
                average_processing_time_ms=tally.run_ms / tally.processed if tally.processed else 0.0,
                detail=detail,
                concurrency=served.concurrency,
                breaker=served.breaker,
                types=served.types,
            )
            await self._write(place, msgspec.json.encode(instance))

    async def _write(self, place: Place, value: bytes) -> None:
        key = instance_key(*place, self._worker)
        version = await self._shared.put(key, value, expected=self._versions.get(place), ttl=KEPT_FOR)
        if version is None:  # it ran out, or was removed by hand
            present = await self._shared.get(key)
            expected = present.version if present is not None else None
            version = await self._shared.put(key, value, expected=expected, ttl=KEPT_FOR)
        if version is not None:
            self._versions[place] = version


async def instances(shared: Shared, clock: Clock, queue: str | None = None) -> list[ConsumerInstance]:
    """Return every instance that said something within the last hour, as of now."""
    now_ms = clock.now_ms()
    entries = await shared.scan(INSTANCE if queue is None else instances_of(queue))
    return [msgspec.json.decode(entry.value, type=ConsumerInstance).seen(now_ms) for entry in entries.values()]
