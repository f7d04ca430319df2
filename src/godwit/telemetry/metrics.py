"""The metrics of a process: the runtime reports once per batch, Prometheus and the monitor read.

Every method takes one lock for a moment, so any thread may call it. `docs/metrics.md` lists the metrics; a test
compares it with the catalogue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from threading import Lock
from typing import Final

import msgspec

from godwit.core import background
from godwit.core.clock import Clock, milliseconds
from godwit.core.failures.failure import FailureKind
from godwit.telemetry import exposition
from godwit.telemetry.catalogue import Catalogue
from godwit.telemetry.instruments import OTHER, Family, Histogram, Labels, Spread
from godwit.telemetry.recent import Outcome, Recent, RecentTimes
from godwit.telemetry.window import MONOTONIC_CLOCK, WINDOW

TYPES_PER_QUEUE: Final = 100
"""Message types told apart in a queue; further ones are counted as `other`."""

TOGETHER: Final = 64
"""Messages published alone that are noted before they are counted together; a reader counts them first."""

INSTANCE_KEPT: Final = timedelta(minutes=10)
"""A consumer instance without a report for so long is left out."""

_Series = list[tuple[Labels, Spread | float]]
_snapshots = msgspec.msgpack.Decoder(dict[str, _Series])


class QueueMetricsCollector:
    """Counts what happens in this process; nothing here waits, fails or grows without bound."""

    def __init__(self, *, clock: Clock = MONOTONIC_CLOCK, window: timedelta = WINDOW) -> None:
        self._clock = clock
        self._lock = Lock()
        self._metric = Catalogue()
        self._recent = RecentTimes(clock=clock, length=window)
        self._alone: deque[tuple[str, str, str, float, int]] = deque()
        self._types: dict[str, int] = {}
        self._instances: dict[Labels, int] = {}

    @property
    def families(self) -> tuple[Family, ...]:
        """Every metric, in the order of the exposition."""
        return self._metric.families

    # Producers report here.

    def enqueued(self, queue: str, type: str, count: int = 1) -> None:
        """Count accepted messages of one type."""
        labels: Labels = (queue, type)
        with self._lock:
            if labels not in self._metric.enqueued.series:
                labels = self._known_type(queue, type)
            self._metric.enqueued.add(labels, count)

    def produced(self, producer: str, count: int) -> None:
        """Count accepted messages of one producer."""
        with self._lock:
            self._count_alone()  # they came before
            self._metric.produced.add((producer,), count)
            self._recent.produced(producer, count)

    def published(self, queue: str, seconds: float) -> None:
        """Take the time of one round trip."""
        with self._lock:
            self._metric.publish.observe((queue,), (seconds,))

    def published_one(self, queue: str, type: str, producer: str, seconds: float) -> None:
        """Do all three for a message that was accepted alone, later and with others.

        Counting each right after its round trip, with nothing in the processor's caches, costs several times as much.
        """
        self._alone.append((queue, type, producer, seconds, self._clock.now_ms()))
        if len(self._alone) >= TOGETHER:
            with self._lock:
                self._count_alone()

    def publish_failed(self, queue: str, error: BaseException | str, count: int = 1) -> None:
        """Count messages whose publish failed; of an error only its class is kept."""
        kind = error if isinstance(error, str) else type(error).__name__
        with self._lock:
            self._metric.publish_errors.add((queue, kind), count)

    # Workers report here.

    def delivered(self, queue: str, group: str, waits_seconds: Sequence[float], redeliveries: int = 0) -> None:
        """Take how long the messages of one pull were ready, and how many of them had been delivered before."""
        with self._lock:
            self._metric.wait.observe((queue, group), waits_seconds)
            if redeliveries:
                self._metric.redeliveries.add((queue, group), redeliveries)

    def processed(
        self,
        queue: str,
        group: str,
        run_seconds: Sequence[float],
        outcome: Outcome,
        *,
        held_seconds: Sequence[float] | None = None,
        latency_seconds: Sequence[float] = (),
    ) -> None:
        """Take the handler runs of a batch that led to one outcome.

        `held_seconds` is delivery to the handler's end where the worker knows it, `latency_seconds` the way from
        creation to the handler's end.
        """
        runs = len(run_seconds)
        if not runs:
            return
        run_seconds = sorted(run_seconds)  # two histograms take it, and sorting again costs next to nothing
        with self._lock:
            self._metric.processed.add((queue, group, outcome.value), runs)
            self._metric.run.observe((queue,), run_seconds)
            self._metric.consume.observe((queue, group), run_seconds if held_seconds is None else held_seconds)
            self._metric.latency.observe((queue, group), latency_seconds)
            self._recent.ran(queue, outcome, runs, sum(run_seconds))

    def acked(self, queue: str, group: str, count: int = 1) -> None:
        """Count deliveries acknowledged."""
        with self._lock:
            self._metric.acks.add((queue, group), count)

    def nacked(self, queue: str, group: str, count: int = 1) -> None:
        """Count deliveries refused for a retry."""
        with self._lock:
            self._metric.nacks.add((queue, group), count)

    def postponed(self, queue: str, group: str, count: int = 1) -> None:
        """Count deliveries whose time had not come: they come again, and this is no failure."""
        with self._lock:
            self._metric.postponed.add((queue, group), count)

    def dead(self, queue: str, group: str, count: int = 1, kind: FailureKind = FailureKind.PERMANENT) -> None:
        """Count messages given up, by the worker or by the broker."""
        with self._lock:
            self._metric.dead.add((queue, group, kind.value), count)
            if kind is FailureKind.POISON:
                self._recent.poisoned(queue, count)

    def handed_back(self, queue: str, group: str, count: int = 1) -> None:
        """Count deliveries returned unhandled."""
        with self._lock:
            self._metric.handed_back.add((queue, group), count)

    def ack_refused(self, queue: str, group: str, count: int = 1) -> None:
        """Count settlements the broker no longer took."""
        with self._lock:
            self._metric.ack_refused.add((queue, group), count)

    # The monitor reports here, every few seconds.

    def depth(
        self,
        queue: str,
        group: str,
        ready: int,
        delayed: int,
        leased: int,
        *,
        blocked: int = 0,
        dead: int | None = None,
        dropped: int | None = None,
    ) -> None:
        """Take what a group holds, as the broker's `stats` says it."""
        with self._lock:
            self._metric.depth.put((queue, group), ready + blocked + delayed + leased)
            for state, count in (("ready", ready), ("blocked", blocked), ("delayed", delayed), ("leased", leased)):
                self._metric.places.put((queue, group, state), count)
            if dead is not None:
                self._metric.dead_now.put((queue, group), dead)
            if dropped is not None:
                self._metric.dropped.put((queue, group), dropped)

    def consumers(self, queue: str, group: str, active: int) -> None:
        """Take how many consumers of this process take messages."""
        with self._lock:
            self._metric.consumers.put((queue, group), active)

    def consumer_health(self, group: str, instance: str, healthy: bool) -> None:  # noqa: FBT001 - the value itself
        """Take the state of one consumer instance; report it again within ten minutes, or it is left out."""
        with self._lock:
            self._drop_silent_instances()
            self._metric.health.put((group, instance), int(healthy))
            if (group, instance) in self._metric.health.series:
                self._instances[group, instance] = self._clock.now_ms()

    def consumer_gone(self, group: str, instance: str) -> None:
        """Leave out an instance that ended."""
        with self._lock:
            self._instances.pop((group, instance), None)
            self._metric.health.series.pop((group, instance), None)

    def connection(self, broker: str, up: bool) -> None:  # noqa: FBT001 - the value itself
        """Take whether the broker answers; `broker` is its kind (redis), never its URL."""
        with self._lock:
            self._metric.connection.put((broker,), int(up))

    def channels(self, opened: int, closed: int) -> None:
        """Take how many channels or connections a broker opened and closed, as it counts them itself."""
        with self._lock:
            self._metric.channel_opens.put((), opened)
            self._metric.channel_closes.put((), closed)

    def scheduler(self, *, last_tick_ms: int, lag_seconds: float, backlog: int) -> None:
        """Take how the scheduler is doing."""
        with self._lock:
            self._metric.scheduler_tick.put((), last_tick_ms / 1000)
            self._metric.scheduler_lag.put((), lag_seconds)
            self._metric.scheduler_backlog.put((), backlog)

    def recorder(self, *, recorded: int, lag_rows: int, lag_seconds: float) -> None:
        """Take what the recorder did and how far it is behind."""
        with self._lock:
            self._metric.recorded.add((), recorded)
            self._metric.recorder_lag.put((), lag_rows)
            self._metric.recorder_behind.put((), lag_seconds)

    def recorder_lost(self) -> None:
        """Count that the journal was gone before it was recorded."""
        with self._lock:
            self._metric.recorder_lost.add((), 1)

    def recorder_unusable(self, rows: int) -> None:
        """Count transitions that could not be recorded."""
        with self._lock:
            self._metric.recorder_unusable.add((), rows)

    def forget(self, queue: str, group: str | None = None) -> None:
        """Leave out a queue, or one group of it, that was removed."""
        with self._lock:
            self._count_alone()
            first = (queue,) if group is None else (queue, group)
            for family in self._metric.families:
                if family.labels[: len(first)] == ("queue", "group")[: len(first)]:
                    family.drop(first)
            if group is None:
                self._recent.queues.pop(queue, None)
                self._types.pop(queue, None)

    # Prometheus, the monitor and the supervisor read here.

    def render(self, *, open_metrics: bool = False) -> str:
        """Return all metrics as text."""
        with self._lock:
            self._bring_up_to_date()
            return exposition.render(self._metric.families, open_metrics=open_metrics)

    def _bring_up_to_date(self) -> None:
        self._drop_silent_instances()
        self._count_alone()
        for task, count in background.failures().items():
            self._metric.background_failures.put((task,), count)

    def snapshot(self) -> bytes:
        """Return every series, for another process to absorb."""
        with self._lock:
            self._bring_up_to_date()
            return msgspec.msgpack.encode(
                {family.name: list(family.series.items()) for family in self._metric.families}
            )

    def absorb(self, snapshot: bytes) -> None:
        """Join the series of another process: a supervisor shows its children as one."""
        series = _snapshots.decode(snapshot)
        with self._lock:
            for family in self._metric.families:
                for labels, value in series.get(family.name, ()):
                    if isinstance(family, Histogram):
                        if isinstance(value, Spread):
                            family.absorb(labels, value)
                    elif not isinstance(value, Spread):
                        family.absorb(labels, value)

    def recent(self, queue: str | None = None) -> Recent:
        """Return the last minutes of a queue, or of all."""
        with self._lock:
            return self._recent.of(queue)

    def queues(self) -> tuple[str, ...]:
        """Return the queues that have numbers of the last minutes."""
        with self._lock:
            return tuple(self._recent.queues)

    def producer_rates(self) -> dict[str, float]:
        """Return the messages per second of every producer that reported."""
        with self._lock:
            self._count_alone()
            return self._recent.producer_rates()

    def processed_total(self, outcome: Outcome, queue: str | None = None) -> int:
        """Return how many runs led to `outcome` since this process began."""
        with self._lock:
            return int(
                sum(
                    count
                    for labels, count in self._metric.processed.series.items()
                    if labels[2] == outcome and queue in (None, labels[0])
                )
            )

    # The names of the notification specification.

    def record_message_enqueued(self, queue_name: str, message_type: str) -> None:
        """Count one accepted message."""
        self.enqueued(queue_name, message_type)

    def record_processing_latency(self, duration_ms: float, queue_name: str) -> None:
        """Take how long a handler ran, in milliseconds; the metric is in seconds."""
        with self._lock:
            self._metric.run.observe((queue_name,), (duration_ms / 1000,))

    def _count_alone(self) -> None:
        """Count what was published alone; the caller has the lock. Others may note more meanwhile."""
        metric, alone = self._metric, self._alone
        for _ in range(len(alone)):
            queue, kind, producer, seconds, at_ms = alone.popleft()
            labels: Labels = (queue, kind)
            if labels not in metric.enqueued.series:
                labels = self._known_type(queue, kind)
            metric.enqueued.add(labels, 1)
            metric.produced.add((producer,), 1)
            self._recent.produced(producer, 1, at_ms)
            metric.publish.observe((queue,), (seconds,))

    def _known_type(self, queue: str, type: str) -> Labels:
        known = self._types.get(queue, 0)
        if known >= TYPES_PER_QUEUE:
            return (queue, OTHER)
        self._types[queue] = known + 1
        return (queue, type)

    def _drop_silent_instances(self) -> None:
        oldest_ms = self._clock.now_ms() - milliseconds(INSTANCE_KEPT)
        for instance in [key for key, seen_ms in self._instances.items() if seen_ms < oldest_ms]:
            del self._instances[instance]
            self._metric.health.series.pop(instance, None)
