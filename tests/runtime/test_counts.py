"""What a worker counts of a delivery: how long it had been ready, and how long it took from its time to its end."""

from __future__ import annotations

from datetime import timedelta

from godwit.brokers.contract import Ack
from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import ManualClock, from_ms
from godwit.core.failures.breaker import BreakerRule
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message, Scheduling
from godwit.core.names import DEFAULT_GROUP, QueueName
from godwit.core.queues import QueueSpec
from godwit.runtime.breaker import QueueCircuitBreaker
from godwit.runtime.worker.counts import WorkerCounts
from godwit.telemetry.metrics import QueueMetricsCollector
from tests.telemetry.test_metrics import value

Q = QueueName("orders")
PLACE = (Q, DEFAULT_GROUP)
LABELS = {"queue": Q, "group": DEFAULT_GROUP}


async def test_wait_counts_from_ready_and_latency_from_creation_or_the_due_time() -> None:
    clock = ManualClock()
    collector = QueueMetricsCollector(clock=clock)
    async with MemoryBroker(clock=clock) as broker:
        await broker.declare(QueueSpec(name=Q))
        breaker = QueueCircuitBreaker(None, "orders", owner="w", rule=BreakerRule(), clock=clock)
        counts = WorkerCounts([PLACE], {PLACE: breaker}, collector)
        due = Scheduling(deliver_at=from_ms(clock.now_ms() + 3_600_000))
        now = from_ms(clock.now_ms())
        await broker.publish([seal(Message(id="later", queue=Q, scheduling=due, created_at=now))])
        clock.advance(timedelta(hours=1, seconds=3))
        old = from_ms(clock.now_ms() - 2_000)
        await broker.publish([seal(Message(id="now", queue=Q, created_at=old))])
        clock.advance(timedelta(seconds=4))
        deliveries = await broker.pull(Q, DEFAULT_GROUP, worker="w", limit=5, lease=timedelta(minutes=1))
        counts.delivered(deliveries)
        clock.advance(timedelta(seconds=1))
        acks = [Ack(delivery.ack_id, 500) for delivery in deliveries]
        counts.settled(deliveries, acks, clock.now_ms())
    assert value(collector, "queue_wait_time_seconds_count", **LABELS) == 2
    assert value(collector, "queue_wait_time_seconds_sum", **LABELS) == 7 + 4
    assert value(collector, "godwit_message_latency_seconds_count", **LABELS) == 2
    assert value(collector, "godwit_message_latency_seconds_sum", **LABELS) == 8 + 7
