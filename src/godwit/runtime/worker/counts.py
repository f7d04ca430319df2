"""A worker's counts: what was delivered and settled, for metrics, heartbeats and breakers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from godwit.brokers.contract import Ack, Delivery, GiveUp, HandBack, Nack, Place, Postpone, Settlement
from godwit.runtime.breaker import QueueCircuitBreaker
from godwit.runtime.worker.heartbeat import Tally
from godwit.telemetry.metrics import QueueMetricsCollector
from godwit.telemetry.recent import Outcome

_ONLY_DONE: Final = {Ack}


class WorkerCounts:
    """Counts in batches, place by place."""

    def __init__(
        self, places: Iterable[Place], breakers: Mapping[Place, QueueCircuitBreaker], metrics: QueueMetricsCollector
    ) -> None:
        self.tallies: dict[Place, Tally] = {place: Tally() for place in places}
        self.metrics = metrics
        self._breakers = breakers

    @property
    def processed(self) -> int:
        """Messages whose handlers ended, well or not."""
        return sum(tally.processed for tally in self.tallies.values())

    @property
    def failed(self) -> int:
        """Messages whose handlers failed."""
        return sum(tally.errors for tally in self.tallies.values())

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        """Count what one pull brought: one delivery at least."""
        first = deliveries[0]
        waits = [(delivery.delivered_at_ms - delivery.ready_at_ms) / 1000 for delivery in deliveries]
        again = len([delivery for delivery in deliveries if delivery.attempt > 1])
        self.metrics.delivered(first.queue, first.group, waits, again)

    def refused(self, deliveries: Sequence[Delivery]) -> None:
        """Count what was settled too late."""
        for delivery in deliveries:
            self.metrics.ack_refused(delivery.queue, delivery.group)

    def settled(self, ended: Sequence[Delivery], settlements: Sequence[Settlement], now_ms: int) -> None:
        """Count what was settled; the breakers learn what worked, and of failures when they are judged."""
        if not ended:
            return
        if len(self.tallies) == 1:
            self._settled_at(next(iter(self.tallies)), ended, settlements, now_ms)
            return
        by_place: dict[Place, tuple[list[Delivery], list[Settlement]]] = {}
        for delivery, settlement in zip(ended, settlements, strict=True):
            found = by_place.setdefault((delivery.queue, delivery.group), ([], []))
            found[0].append(delivery)
            found[1].append(settlement)
        for place, there in by_place.items():
            self._settled_at(place, *there, now_ms)

    def _settled_at(
        self, place: Place, ended: Sequence[Delivery], settlements: Sequence[Settlement], now_ms: int
    ) -> None:
        if set(map(type, settlements)) == _ONLY_DONE:
            self._count_done(place, ended, cast("Sequence[Ack]", settlements), now_ms)
            self._tell_breaker(place, len(settlements), 0)
            return
        pairs = zip(ended, settlements, strict=True)
        done = [(delivery, settlement) for delivery, settlement in pairs if isinstance(settlement, Ack)]
        if done:
            self._count_done(place, [delivery for delivery, _ in done], [ack for _, ack in done], now_ms)
        others = [settlement for settlement in settlements if not isinstance(settlement, Ack)]
        self._count_others(place, others)
        self._tell_breaker(place, len(done), sum(isinstance(settlement, HandBack) for settlement in others))

    def _count_done(self, place: Place, ended: Sequence[Delivery], acks: Sequence[Ack], now_ms: int) -> None:
        count = len(acks)
        runs_ms = [ack.run_ms or 0 for ack in acks]
        run_ms = sum(runs_ms)
        envelopes = [delivery.envelope for delivery in ended]
        latencies = [(now_ms - max(one.created_at_ms, one.deliver_at_ms or 0)) / 1000 for one in envelopes]
        self.tallies[place].count(count, run_ms=run_ms)
        seconds = [one / 1000 for one in runs_ms] if run_ms else [0.0] * count
        self.metrics.processed(*place, seconds, Outcome.DONE, latency_seconds=latencies)
        self.metrics.acked(*place, count)

    def _count_others(self, place: Place, settlements: Sequence[Settlement]) -> None:
        for settlement in settlements:
            match settlement:
                case HandBack():
                    self.metrics.handed_back(*place)
                case Postpone():
                    run_ms = settlement.run_ms or 0
                    self.tallies[place].count(1, run_ms=run_ms)
                    self.metrics.processed(*place, [run_ms / 1000], Outcome.POSTPONED)
                    self.metrics.postponed(*place)
                case Nack() | GiveUp():
                    run_ms = settlement.run_ms or 0
                    self.tallies[place].count(1, run_ms=run_ms, failed=1)
                    outcome = Outcome.RETRY if isinstance(settlement, Nack) else Outcome.DEAD
                    self.metrics.processed(*place, [run_ms / 1000], outcome)
                    if isinstance(settlement, Nack):
                        self.metrics.nacked(*place)
                    else:
                        self.metrics.dead(*place, 1, settlement.kind)

    def _tell_breaker(self, place: Place, done: int, handed_back: int) -> None:
        breaker = self._breakers[place]
        if not breaker.is_watching:
            return
        if done:
            breaker.worked(done)
        for _ in range(handed_back):
            breaker.failed(None)
