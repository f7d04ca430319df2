"""A worker's books: what was delivered and settled, for metrics, heartbeats and breakers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from godwit.brokers.contract import Ack, Delivery, GiveUp, HandBack, Nack, Place, Settlement
from godwit.core.failure import FailureKind
from godwit.runtime.breaker import Breaker
from godwit.runtime.heartbeat import Tally
from godwit.telemetry.metrics import QueueMetricsCollector
from godwit.telemetry.recent import Outcome

Settled = tuple[Delivery, Settlement]


class Accounts:
    """Counts in batches, place by place."""

    def __init__(
        self, places: Iterable[Place], breakers: Mapping[Place, Breaker], metrics: QueueMetricsCollector
    ) -> None:
        self.tallies: dict[Place, Tally] = {place: Tally() for place in places}
        self.metrics = metrics
        self._breakers = breakers

    @property
    def processed(self) -> int:
        """Messages whose handlers ended, well or not."""
        return sum(tally.processed for tally in self.tallies.values())

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        """Count what one pull brought."""
        first = deliveries[0]
        waits = [(delivery.delivered_at_ms - delivery.ready_at_ms) / 1000 for delivery in deliveries]
        again = sum(delivery.attempt > 1 for delivery in deliveries)
        self.metrics.delivered(first.queue, first.group, waits, again)

    async def settled(self, settled: Sequence[Settled], refused: Sequence[Delivery], now_ms: int) -> None:
        """Count what was settled; the breakers learn of it in the order it ended."""
        by_place: dict[Place, list[Settled]] = {}
        for one in settled:
            by_place.setdefault((one[0].queue, one[0].group), []).append(one)
        for place, found in by_place.items():
            self._count(place, found, now_ms)
            await self._tell_breaker(self._breakers[place], [settlement for _, settlement in found])
        for delivery in refused:
            self.metrics.ack_refused(delivery.queue, delivery.group)

    def _count(self, place: Place, settled: Sequence[Settled], now_ms: int) -> None:
        tally = self.tallies[place]
        runs: dict[Outcome, list[float]] = {}
        latencies = []
        for delivery, settlement in settled:
            if isinstance(settlement, HandBack):
                self.metrics.handed_back(*place)
                continue
            outcome = _outcome(settlement)
            run_ms = settlement.run_ms or 0
            runs.setdefault(outcome, []).append(run_ms / 1000)
            tally.count(failed=outcome is not Outcome.DONE, run_ms=run_ms)
            if outcome is Outcome.DONE:
                latencies.append(max(0, now_ms - delivery.envelope.created_at_ms) / 1000)
            elif isinstance(settlement, GiveUp):
                self.metrics.dead(*place, 1, settlement.kind)
        for outcome, seconds in runs.items():
            found = latencies if outcome is Outcome.DONE else ()
            self.metrics.processed(*place, seconds, outcome, latency_seconds=found)
        self.metrics.acked(*place, len(runs.get(Outcome.DONE, ())))
        self.metrics.nacked(*place, len(runs.get(Outcome.RETRY, ())))

    async def _tell_breaker(self, breaker: Breaker, settlements: Sequence[Settlement]) -> None:
        for settlement in settlements:
            match settlement:
                case Ack():
                    await breaker.succeeded()
                case Nack() | GiveUp(kind=FailureKind.TRANSIENT | FailureKind.EXPIRED):
                    await breaker.failed()
                case GiveUp() | HandBack():
                    pass


def _outcome(settlement: Ack | Nack | GiveUp) -> Outcome:
    match settlement:
        case Ack():
            return Outcome.DONE
        case Nack():
            return Outcome.RETRY
        case GiveUp():
            return Outcome.DEAD
