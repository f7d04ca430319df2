"""How the schedulers are doing: each tells all processes when it last ticked and how much is overdue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from godwit.brokers.contract import Shared
from godwit.core.clock import Clock, milliseconds, to_ms
from godwit.core.errors import GodwitError
from godwit.core.shared_keys import SCHEDULER, scheduler_key
from godwit.store.schedules import ScheduleBacklog
from godwit.telemetry.health import Check, HealthCheck

KEPT: Final = timedelta(hours=1)
NAMED: Final = 3
"""So many queues whose broker is away are named."""
TICKS_MISSED: Final = 3
"""A scheduler is missed when it did not tick for so many of its ticks."""


class SchedulerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler as it last told: `lag_seconds` is how late the oldest overdue firing is, `backlog` how many are."""

    name: str
    last_tick_ms: int
    lag_seconds: float
    backlog: int
    error: str | None = None


class SchedulerMetrics(Protocol):
    """Where a scheduler reports; `godwit.telemetry.metrics.QueueMetricsCollector` is one."""

    def scheduler(self, *, last_tick_ms: int, lag_seconds: float, backlog: int) -> None:
        """Take how the scheduler is doing."""
        ...


_decoder = msgspec.json.Decoder(SchedulerEntry)


class SchedulerHealth:
    """A scheduler's entry, and its metrics."""

    def __init__(
        self, shared: Shared, *, name: str, owner: str, clock: Clock, metrics: SchedulerMetrics | None = None
    ) -> None:
        self._shared, self._name, self._clock, self._metrics = shared, name, clock, metrics
        self.owner = owner
        self.last: SchedulerEntry | None = None
        self.last_error: str | None = None

    @property
    def _key(self) -> str:
        return scheduler_key(self.owner)

    async def ticked(self, backlog: ScheduleBacklog, *, away: Mapping[str, str] = MappingProxyType({})) -> None:
        """Tell that a tick went well, but for the queues in `away`, whose brokers did not answer."""
        now_ms = self._clock.now_ms()
        lag = 0.0 if backlog.oldest is None else max(0, now_ms - to_ms(backlog.oldest)) / 1_000
        self.last_error = "; ".join(f"{queue}: {why}" for queue, why in list(away.items())[:NAMED]) or None
        self.last = SchedulerEntry(
            name=self._name, last_tick_ms=now_ms, lag_seconds=lag, backlog=backlog.count, error=self.last_error
        )
        if self._metrics is not None:
            self._metrics.scheduler(last_tick_ms=now_ms, lag_seconds=lag, backlog=backlog.count)
        await self._write(msgspec.json.encode(self.last), ttl=KEPT)

    def failed(self, error: GodwitError) -> None:
        """Remember why a tick did not end; the entry grows old by itself."""
        self.last_error = str(error)

    async def stopped(self) -> None:
        """Take the entry away: this scheduler is not missed."""
        try:
            await self._shared.delete(self._key)
        except GodwitError:
            return  # it ends by itself

    async def _write(self, value: bytes, *, ttl: timedelta) -> None:
        entry = await self._shared.get(self._key)
        await self._shared.put(self._key, value, expected=None if entry is None else entry.version, ttl=ttl)


async def schedulers(shared: Shared) -> list[SchedulerEntry]:
    """Return what the schedulers of all processes told within the last hour, by name."""
    found = await shared.scan(SCHEDULER)
    return sorted((_decoder.decode(entry.value) for entry in found.values()), key=lambda entry: entry.name)


def scheduler_check(
    shared: Shared, *, backlog: Callable[[], Awaitable[ScheduleBacklog]], every: timedelta, clock: Clock
) -> HealthCheck:
    """Be content while a scheduler ticks and nothing is overdue, or while there is nothing to schedule."""

    async def check() -> Check:
        found = await schedulers(shared)
        now_ms, limit_ms = clock.now_ms(), TICKS_MISSED * milliseconds(every)
        alive = [one for one in found if now_ms - one.last_tick_ms <= limit_ms]
        if alive:  # they have just asked the store
            count, lag = max((one.backlog, one.lag_seconds) for one in alive)
        else:
            overdue = await backlog()
            count = overdue.count
            lag = 0.0 if overdue.oldest is None else max(0, now_ms - to_ms(overdue.oldest)) / 1_000
        healthy = lag * 1_000 <= limit_ms and bool(alive or not found)
        detail = f"{len(alive)} of {len(found)} tick; {count:,} overdue, the oldest for {lag:.0f} s"
        return Check("scheduler", healthy=healthy, detail=detail)

    return check
