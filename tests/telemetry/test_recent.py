from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.core.clock import ManualClock
from godwit.core.failures.failure import FailureKind
from godwit.telemetry.metrics import TOGETHER, QueueMetricsCollector
from godwit.telemetry.recent import Outcome, Recent
from godwit.telemetry.window import BUCKETS, WINDOW, Window

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def test_nothing_is_divided_by_zero_before_the_first_message() -> None:
    recent = QueueMetricsCollector(clock=ManualClock()).recent()
    assert recent == Recent()
    assert (recent.per_second, recent.error_rate, recent.retry_rate, recent.average_ms) == (0, 0, 0, 0)
    assert QueueMetricsCollector().recent("never heard of") == Recent()


def test_rates_and_averages_cover_what_happened() -> None:
    clock = ManualClock()
    collector = QueueMetricsCollector(clock=clock)
    clock.advance(100 * SECOND)
    collector.processed("q", "g", [0.1] * 90, Outcome.DONE)
    collector.processed("q", "g", [0.2] * 30, Outcome.RETRY)
    collector.processed("q", "other", [0.3] * 10, Outcome.DEAD)
    recent = collector.recent("q")
    assert recent.per_second == 0.9
    assert recent.error_rate == 0.1
    assert recent.retry_rate == 30 / 130
    assert round(recent.average_ms, 6) == round((9 + 6 + 3) / 130 * 1000, 6)


def test_after_five_minutes_it_is_forgotten() -> None:
    clock = ManualClock()
    collector = QueueMetricsCollector(clock=clock)
    collector.processed("q", "g", [1.0], Outcome.DEAD)
    collector.dead("q", "g", 1, FailureKind.POISON)
    clock.advance(4 * MINUTE)
    assert (collector.recent().failed, collector.recent().poison) == (1, 1)
    clock.advance(MINUTE)
    assert (collector.recent().failed, collector.recent().poison) == (0, 0)
    assert collector.recent().error_rate == 0


def test_a_producer_has_a_rate_until_it_falls_silent() -> None:
    clock = ManualClock()
    collector = QueueMetricsCollector(clock=clock)
    collector.produced("shop", 600)
    clock.advance(60 * SECOND)
    assert collector.producer_rates() == {"shop": 10}
    clock.advance(WINDOW)
    assert collector.producer_rates() == {}
    collector.produced("shop", 1)
    assert list(collector.producer_rates()) == ["shop"]


def test_messages_published_alone_count_when_they_were_and_are_read_at_once() -> None:
    clock = ManualClock()
    collector = QueueMetricsCollector(clock=clock)
    for _ in range(2 * TOGETHER + 3):
        collector.published_one("orders", "created", "shop", 0.001)
    found = 'queue_messages_enqueued_total{queue="orders",type="created"} %d'
    assert found % (2 * TOGETHER + 3) in collector.render()
    clock.advance(60 * SECOND)
    collector.published_one("orders", "created", "shop", 0.001)
    assert collector.producer_rates() == {"shop": pytest.approx((2 * TOGETHER + 4) / 60)}
    collector.published_one("orders", "created", "shop", 0.001)
    clock.advance(2 * WINDOW)
    collector.produced("till", 1)  # what was only noted is not of now
    assert list(collector.producer_rates()) == ["till"]
    assert found % (2 * TOGETHER + 5) in collector.render()


def test_a_clock_set_back_loses_nothing() -> None:
    clock = ManualClock()
    window = Window(columns=1, clock=clock, since_ms=clock.now_ms())
    clock.advance(MINUTE)
    window.sums[window.row()] += 1
    clock.advance(-30 * SECOND)
    window.sums[window.row()] += 1
    assert window.totals() == [2]
    assert window.seconds() >= 1


@given(st.lists(st.tuples(st.integers(0, 400_000), st.integers(1, 9)), max_size=40))
def test_the_ring_agrees_with_a_list_of_events(steps: list[tuple[int, int]]) -> None:
    clock = ManualClock()
    window = Window(columns=2, clock=clock, since_ms=clock.now_ms())
    bucket_ms = WINDOW // timedelta(milliseconds=1) // BUCKETS
    events: list[tuple[int, int]] = []
    for step_ms, amount in steps:
        clock.advance(timedelta(milliseconds=step_ms))
        window.sums[window.row() + 1] += amount
        events.append((clock.now_ms() // bucket_ms, amount))
        kept = sum(n for bucket, n in events if bucket > clock.now_ms() // bucket_ms - BUCKETS)
        assert window.totals() == [0, kept]
        assert 1 <= window.seconds() <= WINDOW.total_seconds()
