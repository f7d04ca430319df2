from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from godwit.brokers.contract import DeadLetter, GiveUp, LetterId, QueueStats
from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import ManualClock
from godwit.core.errors import BrokerUnavailable
from godwit.core.failures.failure import FailureKind
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message, Scheduling
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.core.settings import AlertThresholds, MonitoringSettings
from godwit.telemetry.alerts import Alert
from godwit.telemetry.metrics import QueueMetricsCollector
from godwit.telemetry.monitor import QueueMonitor
from godwit.telemetry.recent import Outcome
from tests.logs import capture_logs

ORDERS, BILLING = QueueName("orders"), GroupName("billing")
LEASE = timedelta(seconds=30)


class World:
    """A memory broker, as a monitor asks for it, and the alerts that the monitor sent."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(clock=self.clock)
        self.collector = QueueMetricsCollector(clock=self.clock)
        self.told: list[Alert] = []
        self.monitor = self.new_monitor()

    def new_monitor(self) -> QueueMonitor:
        return QueueMonitor(
            self,
            self.collector,
            broker="memory",
            version="1.2.3",
            settings=MonitoringSettings(alert_thresholds=AlertThresholds(queue_depth=10)),
            sinks=[self.told.append],
            clock=self.clock,
        )

    async def stats(self) -> Sequence[QueueStats]:
        return await self.broker.stats()

    async def producers(self) -> dict[str, float]:
        return {}

    async def claim(self, alert: Alert) -> bool:
        return alert not in self.told

    async def dead_letters(self, queue: str, group: str, after: str | None) -> Sequence[DeadLetter]:
        last = None if after is None else LetterId(after)
        return await self.broker.dead_letters.page(QueueName(queue), group=GroupName(group), after=last)

    async def publish(self, count: int) -> None:
        await self.broker.publish([seal(Message(queue=ORDERS, payload=number)) for number in range(count)])

    def names(self) -> list[tuple[str, str, str]]:
        return [(alert.name.value, alert.state, alert.subject) for alert in self.told]


@pytest.fixture
async def world() -> World:
    made = World()
    await made.broker.declare(QueueSpec(name=ORDERS), [GroupSpec(name=BILLING, max_crashes=1, forgive_outages=False)])
    return made


async def test_metrics_join_what_the_broker_holds_with_what_this_process_did(world: World) -> None:
    await world.publish(7)
    await world.broker.pull(ORDERS, BILLING, worker="w", limit=2, lease=LEASE)
    world.clock.advance(timedelta(seconds=10))
    world.collector.produced("shop", 7)
    world.collector.processed("orders", "billing", [0.1] * 30, Outcome.DONE)
    world.collector.processed("orders", "billing", [0.3] * 10, Outcome.RETRY)
    found = await world.monitor.get_metrics()
    assert (found.queue_length, found.active_processing, found.deepest) == (5, 2, 5)
    assert (found.total_processed, found.total_failed) == (30, 0)
    assert (found.retry_rate, found.error_rate) == (0.25, 0)
    assert found.average_processing_time == pytest.approx(150)
    assert (found.messages_per_second, found.messages_per_minute) == (3, 180)
    assert found.producers == {"shop": 0.7}
    assert await world.monitor.get_metrics("orders") == replace(found, producers={})
    assert (await world.monitor.get_metrics("nothing")).queue_length == 0


async def test_gauges_follow_the_broker_and_forget_what_was_removed(world: World) -> None:
    await world.publish(3)
    await world.monitor.tick()
    assert 'queue_depth{queue="orders",group="billing"} 3' in await world.monitor.render_metrics()
    assert 'queue_connection_status{broker="memory"} 1' in await world.monitor.render_metrics()
    await world.broker.remove(ORDERS)
    await world.monitor.tick()
    assert 'queue="orders"' not in await world.monitor.render_metrics()


async def test_a_deep_queue_is_told_once_and_makes_the_system_unhealthy_only_above_its_limit(world: World) -> None:
    assert await world.monitor.is_healthy()
    await world.publish(11)
    for _ in range(3):
        await world.monitor.check_alert_conditions()
    assert world.names() == [("HIGH_QUEUE_DEPTH", "firing", "orders/billing")]
    assert (world.told[0].value, world.told[0].threshold) == (11, 10)
    assert await world.monitor.is_healthy()
    await world.publish(990)
    status = await world.monitor.get_health_status()
    assert [check.name for check in status.checks if not check.healthy] == ["queue_depth"]
    assert status.version == "1.2.3"
    await world.broker.purge(ORDERS)
    for _ in range(3):
        await world.monitor.check_alert_conditions()
    assert world.names()[1:] == [("HIGH_QUEUE_DEPTH", "cleared", "orders/billing")]


async def test_messages_due_later_are_no_backlog(world: World) -> None:
    scheduling = Scheduling(deliver_at=datetime(2099, 1, 1, tzinfo=UTC))
    await world.broker.publish([seal(Message(queue=ORDERS, scheduling=scheduling)) for _ in range(20)])
    await world.monitor.tick()
    assert (await world.monitor.get_metrics()).queue_length == 0
    assert world.told == []


async def test_rates_and_slow_handlers_are_told_per_queue(world: World) -> None:
    world.collector.processed("orders", "billing", [31.0] * 5, Outcome.DONE)
    world.collector.processed("orders", "billing", [31.0] * 4, Outcome.RETRY)
    world.collector.processed("orders", "billing", [31.0], Outcome.DEAD)
    world.collector.processed("mail", "x", [0.1] * 100, Outcome.DONE)
    await world.monitor.tick()
    assert sorted(world.names()) == [
        ("HIGH_ERROR_RATE", "firing", "orders"),
        ("HIGH_RETRY_RATE", "firing", "orders"),
        ("SLOW_PROCESSING", "firing", "orders"),
    ]


async def test_a_message_the_broker_isolated_as_poison_is_told(world: World) -> None:
    await world.publish(1)
    await world.broker.pull(ORDERS, BILLING, worker="dies", limit=1, lease=LEASE)
    await world.monitor.tick()
    assert world.told == []
    world.clock.advance(2 * LEASE)
    await world.broker.maintain()
    await world.monitor.tick()
    await world.monitor.tick()
    assert world.names() == [("POISON_MESSAGE", "firing", "orders")]
    assert world.told[0].value == 1


async def test_dead_letters_of_another_kind_or_time_are_no_poison_news(world: World) -> None:
    await world.publish(250)
    pulled = await world.broker.pull(ORDERS, BILLING, worker="w", limit=250, lease=LEASE)
    kinds = (FailureKind.POISON, FailureKind.PERMANENT)
    await world.broker.settle([GiveUp(one.ack_id, kind=kinds[n % 2]) for n, one in enumerate(pulled[:240])])
    world.clock.advance(LEASE / 2)
    monitor = world.new_monitor()
    await monitor.tick()
    await world.broker.settle([GiveUp(pulled[240].ack_id, kind=FailureKind.PERMANENT)])
    await monitor.tick()
    assert world.told == []
    await world.broker.settle([GiveUp(one.ack_id, kind=FailureKind.POISON) for one in pulled[241:244]])
    await monitor.tick()
    assert [(alert.name.value, alert.value) for alert in world.told] == [("POISON_MESSAGE", 3)]


async def test_without_the_broker_it_is_unhealthy_and_still_tells_what_it_knows(world: World) -> None:
    async def gone() -> list[object]:
        raise BrokerUnavailable("redis://u:pw@x.test", "refused", "Start it.")

    world.stats = gone  # type: ignore[assignment]
    world.monitor.register_check("database", gone)  # type: ignore[arg-type]
    world.collector.processed("orders", "billing", [0.1], Outcome.DEAD)
    with capture_logs() as logs:
        await world.monitor.tick()
    assert [entry["event"] for entry in logs] == ["queue_stats_unavailable"]
    assert "pw" not in str(logs)
    assert world.names() == [("HIGH_ERROR_RATE", "firing", "orders")]
    assert 'queue_connection_status{broker="memory"} 0' in await world.monitor.render_metrics()
    assert not await world.monitor.is_healthy()
