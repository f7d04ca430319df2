from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import msgspec
import pytest

from godwit.core.clock import ManualClock
from godwit.core.settings import HealthThresholds
from godwit.telemetry.checks import answers, consumers, scheduler
from godwit.telemetry.health import Check, HealthStatus, QueueHealthMonitor, QueueMetrics

SIX_KEYS = ["status", "timestamp", "checks", "version", "healthy", "metrics"]
SHORT = timedelta(milliseconds=50)


async def quiet() -> QueueMetrics:
    return QueueMetrics()


def monitor(**options: object) -> QueueHealthMonitor:
    settings = {"metrics": quiet, "version": "7.1", "clock": ManualClock(1_750_000_000_000), "timeout": SHORT} | options
    return QueueHealthMonitor(**settings)  # type: ignore[arg-type]


def found(status: HealthStatus) -> dict[str, Check]:
    return {check.name: check for check in status.checks}


async def test_a_status_has_the_six_keys_of_the_specifications() -> None:
    watch = monitor()
    watch.register("broker", answers("broker", quiet))
    said = msgspec.json.decode(msgspec.json.encode(await watch.get_health_status()))
    assert list(said) == SIX_KEYS
    assert said["status"] == "healthy"
    assert said["healthy"] is True
    assert said["timestamp"] == "2025-06-15T15:06:40Z"
    assert said["version"] == "7.1"
    assert {"name": "broker", "healthy": True, "detail": "answers"} in said["checks"]
    assert said["metrics"]["queue_length"] == 0


@pytest.mark.parametrize(
    ("metrics", "culprit"),
    [
        (QueueMetrics(deepest=1001), "queue_depth"),
        (QueueMetrics(retry_rate=0.51), "retry_rate"),
        (QueueMetrics(average_processing_time=30_001), "processing_time"),
    ],
)
async def test_it_fails_above_depth_1000_retry_rate_one_half_or_30000_ms(metrics: QueueMetrics, culprit: str) -> None:
    async def read() -> QueueMetrics:
        return metrics

    status = await monitor(metrics=read).get_health_status()
    assert status.status == "unhealthy"
    assert [check.name for check in status.checks if not check.healthy] == [culprit]


async def test_at_the_limits_it_is_still_healthy() -> None:
    async def read() -> QueueMetrics:
        return QueueMetrics(deepest=1000, retry_rate=0.5, average_processing_time=30_000)

    assert (await monitor(metrics=read).get_health_status()).healthy


async def test_limits_can_be_set() -> None:
    async def read() -> QueueMetrics:
        return QueueMetrics(deepest=11)

    assert not (await monitor(metrics=read, limits=HealthThresholds(queue_depth=10)).get_health_status()).healthy


async def test_checks_run_side_by_side_and_one_that_hangs_costs_its_time_limit_alone() -> None:
    together = asyncio.Barrier(3)

    async def meets_the_others() -> Check:
        await together.wait()
        return Check("", healthy=True)

    async def hangs() -> Check:
        while True:
            try:
                await asyncio.sleep(1.5)
            except asyncio.CancelledError:
                if time.monotonic() > began + 2.5:
                    raise
            else:
                return Check("", healthy=True)

    watch = monitor(timeout=timedelta(seconds=1))
    for name in "abc":
        watch.register(name, meets_the_others)
    watch.register("stubborn", hangs)
    began = time.monotonic()
    checks = found(await watch.get_health_status())
    assert [checks[name].healthy for name in "abc"] == [True] * 3
    assert checks["stubborn"] == Check("stubborn", healthy=False, detail="no answer within 1 s")
    assert not asyncio.all_tasks() - {asyncio.current_task()} - watch._late


async def test_a_check_that_raises_is_unhealthy_and_shows_no_password() -> None:
    async def raises() -> Check:
        raise ConnectionError("cannot reach redis://user:s3cret@example.test:6379/0")

    watch = monitor()
    watch.register("broker", raises)
    checks = found(await watch.get_health_status())
    detail = "ConnectionError: cannot reach redis://***@example.test:6379/0"
    assert checks["broker"] == Check("broker", healthy=False, detail=detail)


async def test_when_the_numbers_cannot_be_read_the_last_ones_are_shown_and_it_is_unhealthy() -> None:
    answers_left = [QueueMetrics(queue_length=5)]

    async def read() -> QueueMetrics:
        return answers_left.pop()

    watch = monitor(metrics=read)
    assert (await watch.get_health_status()).healthy
    later = await watch.get_health_status()
    assert not later.healthy
    assert found(later)["metrics"].detail == "IndexError: pop from empty list"
    assert later.metrics.queue_length == 5


async def test_a_check_can_be_replaced_and_taken_away() -> None:
    async def bad() -> Check:
        return Check("database", healthy=False)

    watch = monitor()
    watch.register("database", bad)
    assert not (await watch.get_health_status()).healthy
    watch.register("database", answers("database", quiet))
    assert (await watch.get_health_status()).healthy
    watch.unregister("database")
    assert "database" not in found(await watch.get_health_status())


async def test_a_failed_consumer_makes_the_consumers_unhealthy_and_a_stopped_one_does_not() -> None:
    states = {"a": "active", "b": "inactive"}

    async def read() -> dict[str, str]:
        return states

    check = consumers(read)
    assert (await check()).healthy
    states["c"] = "failed"
    assert await check() == Check("consumers", healthy=False, detail="2 of 3 well; failed: c")


async def test_a_scheduler_that_stopped_ticking_is_unhealthy() -> None:
    clock = ManualClock()
    ticks: list[int] = []
    check = scheduler(lambda: ticks[-1] if ticks else None, at_most=timedelta(minutes=2), clock=clock)
    assert not (await check()).healthy
    ticks.append(clock.now_ms())
    clock.advance(timedelta(minutes=2))
    assert (await check()).healthy
    clock.advance(timedelta(seconds=1))
    assert await check() == Check("scheduler", healthy=False, detail="last tick 121 s ago")
