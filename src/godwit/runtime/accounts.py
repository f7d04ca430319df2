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
        again = len([delivery for delivery in deliveries if delivery.attempt > 1])
        self.metrics.delivered(first.queue, first.group, waits, again)

    async def settled(self, settled: Sequence[Settled], refused: Sequence[Delivery], now_ms: int) -> None:
        """Count what was settled; the breakers learn of it in the order it ended."""
        by_place: dict[Place, list[Settled]] = {}
        queue = group = None
        found: list[Settled] = []
        for one in settled:
            delivery = one[0]
            if delivery.queue is not queue or delivery.group is not group:  # what was pulled together is alike
                queue, group = delivery.queue, delivery.group
                found = by_place.setdefault((queue, group), [])
            found.append(one)
        for place, found in by_place.items():
            done = [one for one in found if type(one[1]) is Ack]
            self._count_done(place, done, now_ms)
            if len(done) == len(found):
                await self._breakers[place].succeeded()
            else:
                self._count_others(place, [one[1] for one in found if type(one[1]) is not Ack])
                await self._tell_breaker(self._breakers[place], [settlement for _, settlement in found])
        for delivery in refused:
            self.metrics.ack_refused(delivery.queue, delivery.group)

    def _count_done(self, place: Place, done: Sequence[Settled], now_ms: int) -> None:
        if not done:
            return
        runs_ms = [settlement.run_ms or 0 for _, settlement in done]  # type: ignore[union-attr]
        latencies = [(now_ms - delivery.envelope.created_at_ms) / 1000 for delivery, _ in done]
        run_ms = sum(runs_ms)
        self.tallies[place].count(len(done), run_ms=run_ms)
        seconds = [one / 1000 for one in runs_ms] if run_ms else [0.0] * len(done)
        self.metrics.processed(*place, seconds, Outcome.DONE, latency_seconds=latencies)
        self.metrics.acked(*place, len(done))

    def _count_others(self, place: Place, settlements: Sequence[Settlement]) -> None:
        for settlement in settlements:
            match settlement:
                case HandBack():
                    self.metrics.handed_back(*place)
                case Nack() | GiveUp():
                    run_ms = settlement.run_ms or 0
                    self.tallies[place].count(1, run_ms=run_ms, failed=1)
                    outcome = Outcome.RETRY if isinstance(settlement, Nack) else Outcome.DEAD
                    self.metrics.processed(*place, [run_ms / 1000], outcome)
                    if isinstance(settlement, Nack):
                        self.metrics.nacked(*place)
                    else:
                        self.metrics.dead(*place, 1, settlement.kind)

    async def _tell_breaker(self, breaker: Breaker, settlements: Sequence[Settlement]) -> None:
        for settlement in settlements:
            match settlement:
                case Ack():
                    await breaker.succeeded()
                case Nack() | GiveUp(kind=FailureKind.TRANSIENT | FailureKind.EXPIRED):
                    await breaker.failed()
                case GiveUp() | HandBack():
                    pass
