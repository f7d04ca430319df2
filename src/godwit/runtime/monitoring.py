"""What an open manager watches and serves: gauges, alerts, instances, and the pages `/metrics` and `/health/queue`."""

from __future__ import annotations

from collections import Counter
from functools import partial

from godwit.brokers.channel_counts import channels_of
from godwit.brokers.contract import Broker, DeadLetter, LetterId, QueueStats
from godwit.core.background import Background
from godwit.core.clock import Clock
from godwit.core.errors import InvalidSetting
from godwit.core.names import GroupName, QueueName
from godwit.core.periodic import PeriodicTasks
from godwit.core.settings import Settings
from godwit.runtime.producer.stats import producers
from godwit.runtime.shared_alerts import SharedAlerts
from godwit.runtime.worker.heartbeat import STOPPED, ConsumerInstance, InstanceStatus, instances
from godwit.telemetry.checks import consumers
from godwit.telemetry.http import TelemetryServer
from godwit.telemetry.metrics import QueueMetricsCollector
from godwit.telemetry.monitor import QueueMonitor
from godwit.telemetry.sinks import sinks_of


class Monitoring:
    """Runs beside an open manager; `port` may be set before, None serves no pages."""

    def __init__(
        self, broker: Broker, settings: Settings, *, metrics: QueueMetricsCollector, version: str, clock: Clock
    ) -> None:
        self._broker, self._settings, self._metrics, self._clock = broker, settings, metrics, clock
        self.port = settings.monitoring.http_port
        self.monitor = self._monitor(version)
        self._server: TelemetryServer | None = None
        self._background = Background("manager")

    @property
    def address(self) -> str | None:
        """Where the pages are, while they are served."""
        return None if self._server is None else f"http://{self._settings.monitoring.http_host}:{self._server.port}"

    async def start(self) -> None:
        """Begin to watch, and to serve if a port is set."""
        repeat, interval = PeriodicTasks("manager").repeat, self._settings.monitoring.metrics_interval
        check = self._settings.consumer.health_check
        if self.port is not None:
            self._server = await self._serving(self.port)
            look = partial(repeat, "instances", self._look_at_instances, check.interval, at_once=True)
            self._background.keep("instances", look)
        # Without pages it begins later: a short script need not ask for all queues.
        round_ = partial(repeat, "monitor", self.monitor.tick, interval, at_once=self._server is not None, within=None)
        self._background.keep("monitor", round_)

    async def close(self) -> None:
        """Stop watching and serving."""
        await self._background.close()
        if self._server is not None:
            await self._server.close()
            self._server = None

    async def _serving(self, port: int) -> TelemetryServer:
        host = self._settings.monitoring.http_host
        server = TelemetryServer(
            metrics=self.monitor.render_metrics,
            health=self.monitor.get_health_status,
            ready=self.monitor.get_readiness,
            host=host,
            port=port,
        )
        try:
            await server.start()
        except OSError as error:
            allowed = f"a port of {host} that can be listened on ({error.strerror or error})"
            raise InvalidSetting("monitoring.http_port", port, allowed) from None
        return server

    async def _look_at_instances(self) -> None:
        """Show every instance of every process, as of each health check interval."""
        for instance in await self.instances():
            self._show(instance)

    def _show(self, instance: ConsumerInstance) -> None:
        if instance.status is InstanceStatus.INACTIVE and instance.detail == STOPPED:
            self._metrics.consumer_gone(instance.group, instance.id)
        else:
            self._metrics.consumer_health(instance.group, instance.id, instance.status is not InstanceStatus.FAILED)

    async def instances(self, queue: str | None = None) -> list[ConsumerInstance]:
        """Return every consumer instance that wrote a heartbeat within the last hour, and how it does."""
        return await instances(self._broker.shared, self._clock, queue)

    def _monitor(self, version: str) -> QueueMonitor:
        monitoring = self._settings.monitoring
        monitor = QueueMonitor(
            _BrokerSide(self._broker, self._metrics),
            self._metrics,
            broker=self._settings.broker_url.partition(":")[0],
            version=self._settings.app_version or version,
            settings=monitoring,
            sinks=sinks_of(monitoring),
            clock=self._clock,
        )
        monitor.register_check("consumers", consumers(self._instance_states))
        return monitor

    async def _instance_states(self) -> dict[str, str]:
        now_ms = self._clock.now_ms()
        found = [instance for instance in await self.instances() if not instance.is_forgotten(now_ms)]
        return {f"{one.queue}/{one.group}/{one.id}": one.status for one in found}


class _BrokerSide:
    """What a monitor asks, answered by the broker and the values that processes share through it."""

    def __init__(self, broker: Broker, metrics: QueueMetricsCollector) -> None:
        self._broker, self._metrics = broker, metrics
        self.claim = SharedAlerts(broker.shared).claim

    async def stats(self) -> list[QueueStats]:
        channels = channels_of(self._broker)
        if channels is not None:
            self._metrics.channels(channels.channel_opens, channels.channel_closes)
        return await self._broker.stats()

    async def producers(self) -> dict[str, float]:
        rates: Counter[str] = Counter()
        for producer in await producers(self._broker.shared):
            rates[producer.name] += producer.per_second  # type: ignore[assignment] # a Counter adds any numbers
        return dict(rates)

    async def dead_letters(self, queue: str, group: str, after: str | None) -> list[DeadLetter]:
        return await self._broker.dead_letters.page(
            QueueName(queue), group=GroupName(group), after=LetterId(after) if after else None
        )
