"""Whether this system is well: named checks, run side by side, each with its own time limit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from godwit.core.background import is_cancelled
from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms, milliseconds
from godwit.core.error_text import error_text, type_name
from godwit.core.settings import DEFAULTS, HealthThresholds

CHECK_TIMEOUT: Final = timedelta(seconds=2)
DETAIL_CHARACTERS: Final = 300

_PASSWORD = re.compile(r"(?<=://)[^/\s@]+@")


class Check(msgspec.Struct, frozen=True):
    """What one check found."""

    name: str
    healthy: bool
    detail: str = ""


class QueueMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """How the queues are doing, or one of them.

    `queue_length` is what waits to be handled now (ready, or behind its ordering key), `deepest` the largest such
    number of a single group, `average_processing_time` in milliseconds. Totals count since this process began, rates
    and the average cover the last five minutes; all of them are 0 before the first message.
    """

    queue_length: int = 0
    active_processing: int = 0
    total_processed: int = 0
    total_failed: int = 0
    average_processing_time: float = 0.0
    retry_rate: float = 0.0
    error_rate: float = 0.0
    messages_per_second: float = 0.0
    messages_per_minute: float = 0.0
    deepest: int = 0
    producers: dict[str, float] = {}


class HealthStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/health/queue`."""

    status: Literal["healthy", "unhealthy"]
    timestamp: datetime
    checks: tuple[Check, ...]
    version: str
    healthy: bool
    metrics: QueueMetrics


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/health/ready`: whether this process can work, whatever the queues and other processes do."""

    status: Literal["ready", "not ready"]
    timestamp: datetime
    checks: tuple[Check, ...]
    version: str
    ready: bool


def judged(metrics: QueueMetrics, limits: HealthThresholds) -> tuple[Check, ...]:
    """Say whether no group has too much waiting, and whether handlers neither fail too often nor take too long."""
    return (
        _at_most("queue_depth", metrics.deepest, limits.queue_depth),
        _at_most("retry_rate", metrics.retry_rate, limits.retry_rate),
        _at_most("processing_time", metrics.average_processing_time, milliseconds(limits.processing_time), " ms"),
    )


HealthCheck = Callable[[], Awaitable[Check]]


class QueueHealthMonitor:
    """Runs the registered checks and judges the numbers."""

    def __init__(
        self,
        *,
        metrics: Callable[[], Awaitable[QueueMetrics]],
        version: str,
        limits: HealthThresholds = DEFAULTS.monitoring.health_thresholds,
        clock: Clock = SYSTEM_CLOCK,
        timeout: timedelta = CHECK_TIMEOUT,
    ) -> None:
        self._metrics, self._version, self._limits = metrics, version, limits
        self._clock, self._timeout = clock, timeout
        self._checks: dict[str, HealthCheck] = {}
        self._own: set[str] = set()
        self._last = QueueMetrics()
        self._late: set[asyncio.Task[object]] = set()

    def register(self, name: str, check: HealthCheck, *, own: bool = False) -> None:
        """Add a check, or replace the one of that name; `own` ones say whether this process can work."""
        self._checks[name] = check
        if own:
            self._own.add(name)

    def unregister(self, name: str) -> None:
        """Take a check away."""
        self._checks.pop(name, None)

    async def get_health_status(self) -> HealthStatus:
        """Run everything once; never raises, and takes no longer than the time limit."""
        checks = await self._run({"metrics": self._read_metrics, **self._checks})
        # The numbers are not a check of their own: only their absence is worth a line.
        found = tuple(check for check in checks if check.name != "metrics" or not check.healthy)
        found += judged(self._last, self._limits)
        healthy = all(check.healthy for check in found)
        return HealthStatus(
            status="healthy" if healthy else "unhealthy",
            timestamp=from_ms(self._clock.now_ms()),
            checks=found,
            version=self._version,
            healthy=healthy,
            metrics=self._last,
        )

    async def get_readiness(self) -> Readiness:
        """Run the checks of this process alone; never raises, and takes no longer than the time limit."""
        checks = tuple(await self._run({name: self._checks[name] for name in self._checks if name in self._own}))
        ready = all(check.healthy for check in checks)
        return Readiness(
            status="ready" if ready else "not ready",
            timestamp=from_ms(self._clock.now_ms()),
            checks=checks,
            version=self._version,
            ready=ready,
        )

    async def _read_metrics(self) -> Check:
        self._last = await self._metrics()
        return Check("metrics", healthy=True)

    async def _run(self, checks: dict[str, HealthCheck]) -> list[Check]:
        tasks = {name: asyncio.ensure_future(_guarded(name, check)) for name, check in checks.items()}
        try:
            # Not wait_for: it waits for a check that does not let itself be cancelled.
            await asyncio.wait(tasks.values(), timeout=self._timeout.total_seconds())
        finally:
            for task in tasks.values():
                if not task.done():
                    task.cancel()
                    self._late.add(task)
                    task.add_done_callback(self._late.discard)
        limit = f"no answer within {self._timeout.total_seconds():g} s"
        return [
            task.result() if task.done() else Check(name, healthy=False, detail=limit) for name, task in tasks.items()
        ]


async def _guarded(name: str, check: HealthCheck) -> Check:
    try:
        found = await check()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        return Check(name, healthy=False, detail=described(error))
    return found if found.name == name else msgspec.structs.replace(found, name=name)


def described(error: BaseException) -> str:
    """Return an error for a reader who must not see passwords."""
    name, text = type_name(error), error_text(error)
    text = text if text.startswith(name) else f"{name}: {text}"
    return _PASSWORD.sub("***@", text)[:DETAIL_CHARACTERS]


def _at_most(name: str, value: float, limit: float, unit: str = "") -> Check:
    return Check(name, healthy=value <= limit, detail=f"{value:g}{unit} (limit {limit:g}{unit})")
