"""How a worker does: its pauses, health checks and watchdog, told to heartbeats and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from godwit.brokers.contract import Place
from godwit.core.errors import BrokerClosed, GodwitError
from godwit.core.logs import RepeatedTrouble, get_logger
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.heartbeat import PAUSED, STOPPED, Heartbeat, InstanceStatus, State
from godwit.telemetry.metrics import QueueMetricsCollector

log = get_logger(__name__)


class WorkerStatus:
    """The state of one worker at each of its places: active, inactive while paused, failed when something is wrong."""

    def __init__(
        self,
        heartbeat: Heartbeat,
        consumers: Sequence[Consumer],
        *,
        worker: str,
        metrics: QueueMetricsCollector,
        paused: Callable[[Place], bool],
        trouble: Callable[[], str | None],
    ) -> None:
        self._heartbeat, self._consumers, self._worker = heartbeat, consumers, worker
        self._metrics, self._paused, self._trouble = metrics, paused, trouble
        self._problems: dict[int, str] = {}
        """What health callables complained of, by the number of the consumer."""
        self._unwritten = RepeatedTrouble(log, "heartbeat not written", worker=worker)
        self._told: dict[Place, State] = {}
        self._serving = Counter((queue, consumer.group) for consumer in consumers for queue in consumer.queues)

    def states(self) -> dict[Place, State]:
        """Return how this worker does, place by place."""
        return {place: self._state(place, problem) for place, problem in self._places()}

    def _places(self) -> Iterator[tuple[Place, str | None]]:
        trouble = self._trouble()
        found: dict[Place, str | None] = {}
        for number, consumer in enumerate(self._consumers):
            for queue in consumer.queues:
                place = (queue, consumer.group)
                found[place] = found.get(place) or self._problems.get(number) or trouble
        return iter(found.items())

    def _state(self, place: Place, problem: str | None) -> State:
        if problem is not None:
            return InstanceStatus.FAILED, problem
        return (InstanceStatus.INACTIVE, PAUSED) if self._paused(place) else (InstanceStatus.ACTIVE, None)

    async def ask(self, number: int) -> None:
        """Ask a consumer's health callable; a change is reported at once."""
        consumer = self._consumers[number]
        before, problem = self._problems.get(number), await consumer.health.problem()
        if problem is None:
            self._problems.pop(number, None)
        else:
            self._problems[number] = problem
        if before != problem:
            log.warning("consumer health changed", consumer=consumer.name, problem=problem)
            await self.beat()

    async def beat(self) -> None:
        """Tell the other processes and the metrics."""
        self._told = states = self.states()
        self._report(states)
        await self._write(states)

    async def beat_if_changed(self) -> None:
        """Tell at once what is news: a pause, or a consumer that had to be started again."""
        if self._told and self.states() != self._told:
            await self.beat()

    async def goodbye(self) -> None:
        """Say that this worker ended of its own will."""
        for group in {consumer.group for consumer in self._consumers}:
            self._metrics.consumer_gone(group, self._worker)
        for place, _ in self._places():
            self._metrics.consumers(*place, 0)
        await self._write({place: (InstanceStatus.INACTIVE, STOPPED) for place, _ in self._places()})

    def _report(self, states: dict[Place, State]) -> None:
        healthy: dict[str, bool] = {}
        for (queue, group), (status, _) in states.items():
            serving = self._serving[queue, group] if status is InstanceStatus.ACTIVE else 0
            self._metrics.consumers(queue, group, serving)
            healthy[group] = healthy.get(group, True) and status is not InstanceStatus.FAILED
        for group, well in healthy.items():
            self._metrics.consumer_health(group, self._worker, well)

    async def _write(self, states: dict[Place, State]) -> None:
        try:
            await self._heartbeat.beat(states)
        except BrokerClosed:
            raise
        except GodwitError as error:
            self._unwritten.came(error)
        else:
            self._unwritten.over("heartbeat written again")
