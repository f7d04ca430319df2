"""QueueMonitor: one place to ask how the queues are doing.

It reads the broker's numbers and dead letters through `WatchedSystem`, so that it knows no broker. `tick()` is one
round: refresh the gauges, evaluate the alerts, tell the sinks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.logs import get_logger
from godwit.core.settings import DEFAULTS, MonitoringSettings
from godwit.telemetry.alerts import Alert, AlertName, AlertRules, Reading, rules
from godwit.telemetry.checks import answers, background_tasks
from godwit.telemetry.health import (
    HealthCheck,
    HealthStatus,
    QueueHealthMonitor,
    QueueMetrics,
    Readiness,
    described,
)
from godwit.telemetry.metrics import QueueMetricsCollector
from godwit.telemetry.poison import Letter, PoisonWatch
from godwit.telemetry.recent import Outcome
from godwit.telemetry.sinks import Sink, log_sink, tell

_log = get_logger(__name__)


class GroupNumbers(Protocol):
    """What a group holds, as a broker's `GroupStats` says it."""

    @property
    def name(self) -> str: ...
    @property
    def ready(self) -> int: ...
    @property
    def blocked(self) -> int: ...
    @property
    def delayed(self) -> int: ...
    @property
    def leased(self) -> int: ...
    @property
    def dead(self) -> int: ...
    @property
    def dropped(self) -> int: ...


class QueueNumbers(Protocol):
    """What a queue holds, as a broker's `QueueStats` says it."""

    @property
    def name(self) -> str: ...
    @property
    def groups(self) -> Sequence[GroupNumbers]: ...


class WatchedSystem(Protocol):
    """What a monitor asks of the broker, and through it of the other processes."""

    async def stats(self) -> Sequence[QueueNumbers]:
        """Return what every queue holds."""

    async def producers(self) -> Mapping[str, float]:
        """Return the messages per second of every producer of all processes, by name."""

    async def dead_letters(self, queue: str, group: str, after: str | None) -> Sequence[Letter]:
        """Return a page of a group's dead letters beyond a letter's id, oldest first."""

    async def claim(self, alert: Alert) -> bool:
        """Say whether this process is the one to tell an alert that others see as well."""


class QueueMonitor:
    """Metrics, health and alerts of the queues as this process sees them."""

    def __init__(
        self,
        system: WatchedSystem,
        collector: QueueMetricsCollector,
        *,
        broker: str,
        version: str,
        settings: MonitoringSettings = DEFAULTS.monitoring,
        sinks: Sequence[Sink] = (log_sink,),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.collector = collector
        self._system, self._broker, self._sinks = system, broker, list(sinks)
        self._alerts = AlertRules(rules(settings.alert_thresholds), clock=clock)
        self._health = QueueHealthMonitor(
            metrics=self.get_metrics, version=version, limits=settings.health_thresholds, clock=clock
        )
        self._poison = PoisonWatch(system.dead_letters, since_ms=clock.now_ms())
        self._stats: Sequence[QueueNumbers] = ()
        self.register_check("broker", answers("broker", system.stats), own=True)
        self.register_check("background", background_tasks(), own=True)

    def register_check(self, name: str, check: HealthCheck, *, own: bool = False) -> None:
        """Add a health check, or replace the one of that name; `own` ones say whether this process can work."""
        self._health.register(name, check, own=own)

    def add_sink(self, sink: Sink) -> None:
        """Tell alerts to one more place: a callable that takes an `Alert`."""
        self._sinks.append(sink)

    async def refresh(self) -> Sequence[QueueNumbers]:
        """Read the broker's numbers into the gauges; raises what the broker raises."""
        try:
            found = await self._system.stats()
        except Exception:
            self.collector.connection(self._broker, up=False)
            raise
        self.collector.connection(self._broker, up=True)
        present = {(queue, group.name) for queue, group in _groups(found)}
        for queue, group in _groups(self._stats):
            if (queue, group.name) not in present:
                self.collector.forget(queue, group.name)
        for name in {queue.name for queue in self._stats} - {queue.name for queue in found}:
            self.collector.forget(name)
        for queue, group in _groups(found):
            self.collector.depth(
                queue,
                group.name,
                group.ready,
                group.delayed,
                group.leased,
                blocked=group.blocked,
                dead=group.dead,
                dropped=group.dropped,
            )
        self._stats = found
        return found

    async def get_metrics(self, queue: str | None = None) -> QueueMetrics:
        """Return the numbers of one queue, or of all."""
        found = await self.refresh()
        groups = [group for name, group in _groups(found) if queue in (None, name)]
        waiting = [group.ready + group.blocked for group in groups]
        recent = self.collector.recent(queue)
        return QueueMetrics(
            queue_length=sum(waiting),
            active_processing=sum(group.leased for group in groups),
            total_processed=self.collector.processed_total(Outcome.DONE, queue),
            total_failed=self.collector.processed_total(Outcome.DEAD, queue),
            average_processing_time=recent.average_ms,
            retry_rate=recent.retry_rate,
            error_rate=recent.error_rate,
            messages_per_second=recent.per_second,
            messages_per_minute=recent.per_second * 60,
            deepest=max(waiting, default=0),
            producers=await self._producer_rates() if queue is None else {},
        )

    async def _producer_rates(self) -> dict[str, float]:
        """Return the rates of all processes; this one's own are the freshest."""
        return {**self.collector.producer_rates(), **await self._system.producers()}

    async def render_metrics(self, open_metrics: bool = False) -> str:  # noqa: FBT001, FBT002 - what TelemetryServer calls
        """Return the metrics as text, the gauges as of the last round."""
        return self.collector.render(open_metrics=open_metrics)

    async def get_health_status(self) -> HealthStatus:
        """Run every check; never raises."""
        return await self._health.get_health_status()

    async def get_readiness(self) -> Readiness:
        """Say whether this process can work; never raises."""
        return await self._health.get_readiness()

    async def is_healthy(self) -> bool:
        """Say whether every check is content."""
        return (await self.get_health_status()).healthy

    async def check_alert_conditions(self) -> list[Alert]:
        """Evaluate the rules once, tell the sinks what changed and return it."""
        try:
            for queue, group in _groups(await self.refresh()):
                await self._poison.look(queue, group.name, group.dead)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - rates are known without the broker; the health check reports it
            _log.warning("queue_stats_unavailable", broker=self._broker, error=described(error))
        changes = self._alerts.evaluate(self._readings())
        await tell(self._sinks, [alert for alert in changes if await self._system.claim(alert)])
        return changes

    async def tick(self) -> int:
        """Refresh gauges, evaluate alerts; return how many alerts changed."""
        return len(await self.check_alert_conditions())

    def _readings(self) -> Iterator[Reading]:
        for queue, group in _groups(self._stats):
            waiting = group.ready + group.blocked
            yield Reading(AlertName.HIGH_QUEUE_DEPTH, f"{queue}/{group.name}", waiting)
        poison = {queue: self.collector.recent(queue).poison for queue in self.collector.queues()}
        # The watch sees those of all processes, the collector only its own.
        poison |= {queue.name: self._poison.recent(queue.name) for queue in self._stats}
        for queue, count in poison.items():
            yield Reading(AlertName.POISON_MESSAGE, queue, count)
        for queue in self.collector.queues():
            recent = self.collector.recent(queue)
            yield Reading(AlertName.HIGH_RETRY_RATE, queue, recent.retry_rate)
            yield Reading(AlertName.HIGH_ERROR_RATE, queue, recent.error_rate)
            yield Reading(AlertName.SLOW_PROCESSING, queue, recent.average_ms)


def _groups(stats: Sequence[QueueNumbers]) -> Iterator[tuple[str, GroupNumbers]]:
    return ((queue.name, group) for queue in stats for group in queue.groups)
