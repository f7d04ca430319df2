from __future__ import annotations

import random
import threading
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.core.clock import ManualClock
from godwit.core.failures.failure import FailureKind
from godwit.telemetry.instruments import RUN_SECONDS, SERIES_LIMIT, Histogram, MetricKind, Numbers
from godwit.telemetry.metrics import TYPES_PER_QUEUE, QueueMetricsCollector
from godwit.telemetry.recent import WINDOWS, Outcome
from tests.telemetry.prometheus_parser import Samples, open_metrics_families, plain_families, samples

SEED_METRICS = {
    "queue_messages_enqueued_total": ("counter", {"queue", "type"}),
    "queue_messages_processed_total": ("counter", {"queue", "group", "outcome"}),
    "queue_processing_duration_seconds": ("histogram", {"queue"}),
    "queue_depth": ("gauge", {"queue", "group"}),
    "consumer_health_status": ("gauge", {"group", "instance"}),
    "queue_message_publish_duration_seconds": ("histogram", {"queue"}),
    "queue_message_consume_duration_seconds": ("histogram", {"queue", "group"}),
    "queue_message_ack_total": ("counter", {"queue", "group"}),
    "queue_message_nack_total": ("counter", {"queue", "group"}),
    "queue_message_redelivery_total": ("counter", {"queue", "group"}),
    "queue_depth_messages": ("gauge", {"queue", "group", "state"}),
    "queue_consumers_active": ("gauge", {"queue", "group"}),
    "queue_wait_time_seconds": ("histogram", {"queue", "group"}),
    "queue_connection_status": ("gauge", {"broker"}),
    "queue_channel_opens_total": ("counter", set[str]()),
    "queue_channel_closes_total": ("counter", set[str]()),
}


def plain(collector: QueueMetricsCollector) -> Samples:
    return samples(plain_families(collector.render()))


def value(collector: QueueMetricsCollector, name: str, **labels: str) -> float | None:
    return plain(collector).get((name, frozenset(labels.items())))


def full_collector(clock: ManualClock | None = None) -> QueueMetricsCollector:
    """Return a collector in which every method was called."""
    collector = QueueMetricsCollector(clock=clock or ManualClock())
    collector.enqueued("orders", "order.created", 3)
    collector.produced("shop", 3)
    collector.published("orders", 0.002)
    collector.publish_failed("orders", TimeoutError("x"))
    collector.delivered("orders", "billing", [0.01, 7.0], redeliveries=1)
    collector.processed("orders", "billing", [0.02, 0.5], Outcome.DONE, held_seconds=[0.1, 0.6], latency_seconds=[9, 1])
    collector.processed("orders", "billing", [1.0], Outcome.RETRY)
    collector.processed("orders", "billing", [2.0], Outcome.DEAD)
    collector.acked("orders", "billing", 2)
    collector.nacked("orders", "billing")
    collector.dead("orders", "billing", 1, FailureKind.POISON)
    collector.handed_back("orders", "billing")
    collector.ack_refused("orders", "billing")
    collector.depth("orders", "billing", 5, 2, 1, blocked=3, dead=4, dropped=6)
    collector.consumers("orders", "billing", 2)
    collector.consumer_health("billing", "host-1", healthy=True)
    collector.connection("memory", up=True)
    collector.channels(1, 1)
    collector.scheduler(last_tick_ms=1_750_000_000_000, lag_seconds=0.5, backlog=7)
    return collector


@pytest.mark.parametrize("name", SEED_METRICS)
def test_the_sixteen_metrics_of_the_specifications_have_their_name_kind_and_labels(name: str) -> None:
    kind, labels = SEED_METRICS[name]
    collector = full_collector()
    (family,) = (family for family in plain_families(collector.render()) if family.name == name.removesuffix("_total"))
    assert family.type == kind
    suffixes = ("_bucket",) if kind == "histogram" else ("",)
    shown = [sample for sample in family.samples if sample.name in {name + suffix for suffix in suffixes}]
    assert shown
    assert {frozenset(sample.labels) - {"le"} for sample in shown} == {frozenset(labels)}


def test_the_families_are_the_sixteen_and_those_that_begin_with_godwit() -> None:
    names = [family.name for family in QueueMetricsCollector().families]
    assert names[:16] == list(SEED_METRICS)
    assert [name for name in names[16:] if not name.startswith("godwit_")] == []
    assert len(set(names)) == len(names)


def test_both_formats_say_the_same_to_a_real_parser() -> None:
    collector = full_collector()
    open_metrics = samples(open_metrics_families(collector.render(open_metrics=True)))
    assert open_metrics == plain(collector)
    assert len(open_metrics) > 100


def test_every_method_reaches_its_metric() -> None:
    said = full_collector()
    group = {"queue": "orders", "group": "billing"}
    assert value(said, "queue_messages_enqueued_total", queue="orders", type="order.created") == 3
    assert value(said, "godwit_producer_messages_total", producer="shop") == 3
    assert value(said, "queue_message_publish_duration_seconds_sum", queue="orders") == 0.002
    assert value(said, "godwit_publish_errors_total", queue="orders", error="TimeoutError") == 1
    assert value(said, "queue_wait_time_seconds_bucket", **group, le="5.0") == 1
    assert value(said, "queue_wait_time_seconds_count", **group) == 2
    assert value(said, "queue_message_redelivery_total", **group) == 1
    assert value(said, "queue_messages_processed_total", **group, outcome="done") == 2
    assert value(said, "queue_messages_processed_total", **group, outcome="retry") == 1
    assert value(said, "queue_messages_processed_total", **group, outcome="dead") == 1
    assert value(said, "queue_processing_duration_seconds_sum", queue="orders") == 3.52
    assert value(said, "queue_message_consume_duration_seconds_sum", **group) == pytest.approx(3.7)
    assert value(said, "godwit_message_latency_seconds_sum", **group) == 10
    assert value(said, "queue_message_ack_total", **group) == 2
    assert value(said, "queue_message_nack_total", **group) == 1
    assert value(said, "godwit_dead_letters_total", **group, kind="poison") == 1
    assert value(said, "godwit_messages_handed_back_total", **group) == 1
    assert value(said, "godwit_ack_refused_total", **group) == 1
    assert value(said, "queue_depth", **group) == 11
    places = {"ready": 5, "delayed": 2, "leased": 1, "blocked": 3}
    assert {p: value(said, "queue_depth_messages", **group, state=p) for p in places} == places
    assert value(said, "godwit_dead_letters_waiting", **group) == 4
    assert value(said, "godwit_messages_dropped_total", **group) == 6
    assert value(said, "queue_consumers_active", **group) == 2
    assert value(said, "consumer_health_status", group="billing", instance="host-1") == 1
    assert value(said, "queue_connection_status", broker="memory") == 1
    assert value(said, "queue_channel_opens_total") == 1
    assert value(said, "queue_channel_closes_total") == 1
    assert value(said, "godwit_scheduler_last_tick_timestamp_seconds") == 1_750_000_000
    assert value(said, "godwit_scheduler_lag_seconds") == 0.5
    assert value(said, "godwit_scheduler_backlog") == 7


def test_the_names_of_the_notification_specification_record_in_seconds() -> None:
    collector = QueueMetricsCollector()
    collector.record_message_enqueued("mail", "welcome")
    collector.record_processing_latency(250, "mail")
    assert value(collector, "queue_messages_enqueued_total", queue="mail", type="welcome") == 1
    assert value(collector, "queue_processing_duration_seconds_sum", queue="mail") == 0.25


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_label_value_comes_through_both_formats(queue: str, kind: str) -> None:
    collector = QueueMetricsCollector()
    collector.enqueued(queue, kind)
    sendable = frozenset({"queue": _sendable(queue), "type": _sendable(kind)}.items())
    for families in (
        plain_families(collector.render()),
        open_metrics_families(collector.render(open_metrics=True)),
    ):
        assert samples(families)["queue_messages_enqueued_total", sendable] == 1


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@given(st.lists(st.floats(min_value=0, max_value=400, allow_nan=False), max_size=60))
def test_a_batch_falls_into_the_same_buckets_as_its_values_one_by_one(values: list[float]) -> None:
    together = Histogram("h", ("q",), "", RUN_SECONDS)
    together.observe(("a",), values)
    expected = [sum(v <= bound for v in values) for bound in RUN_SECONDS]
    counts = together.series[("a",)].counts if values else [0] * (len(RUN_SECONDS) + 1)
    assert [sum(counts[: index + 1]) for index in range(len(RUN_SECONDS))] == expected
    assert sum(counts) == len(values)


@pytest.mark.parametrize("count", [1, 50])
def test_what_is_no_duration_does_not_spoil_a_histogram(count: int) -> None:
    histogram = Histogram("h", ("q",), "", RUN_SECONDS)
    histogram.observe(("a",), [float("nan"), -3.0, float("inf"), 2.0] * count)
    assert histogram.series[("a",)].total == 2.0 * count
    assert histogram.series[("a",)].count == 2 * count
    histogram.observe(("a",), ())
    assert histogram.series[("a",)].count == 2 * count


def test_a_type_per_message_does_not_make_a_series_per_message() -> None:
    collector = QueueMetricsCollector()
    for number in range(10 * TYPES_PER_QUEUE):
        collector.enqueued("orders", f"type-{number}")
    known = {labels: n for labels, n in plain(collector).items() if labels[0] == "queue_messages_enqueued_total"}
    assert len(known) == TYPES_PER_QUEUE + 1
    assert sum(known.values()) == 10 * TYPES_PER_QUEUE
    assert value(collector, "queue_messages_enqueued_total", queue="orders", type="other") == 9 * TYPES_PER_QUEUE


def test_a_queue_per_message_is_counted_but_does_not_fill_the_memory() -> None:
    collector = QueueMetricsCollector()
    for number in range(SERIES_LIMIT + 500):
        collector.acked(f"q{number}", "g")
        collector.processed(f"q{number}", "g", [1.0], Outcome.DONE)
        collector.depth(f"q{number}", "g", 1, 0, 0)
    assert max(len(family.series) for family in collector.families) <= SERIES_LIMIT + 1
    assert value(collector, "queue_message_ack_total", queue="other", group="other") == 500
    assert collector.recent().done == SERIES_LIMIT + 500
    assert len(collector.queues()) == WINDOWS + 1


def test_an_instance_that_is_gone_leaves_no_series() -> None:
    clock = ManualClock()
    collector = QueueMetricsCollector(clock=clock)
    for name in ("said-goodbye", "fell-silent", "lives"):
        collector.consumer_health("billing", name, healthy=True)
    collector.consumer_gone("billing", "said-goodbye")
    clock.advance(timedelta(minutes=9))
    collector.consumer_health("billing", "lives", healthy=False)
    clock.advance(timedelta(minutes=2))
    shown = {s: v for s, v in plain(collector).items() if s[0] == "consumer_health_status"}
    assert shown == {
        ("consumer_health_status", frozenset({"group": "billing", "instance": "lives"}.items())): 0,
    }


def test_a_removed_group_and_a_removed_queue_leave_no_series() -> None:
    collector = full_collector()
    collector.acked("orders", "audit")
    collector.acked("mail", "billing")
    collector.forget("orders", "billing")
    left = plain(collector)
    assert [name for name, labels in left if ("group", "billing") in labels and ("queue", "orders") in labels] == []
    assert value(collector, "queue_message_ack_total", queue="orders", group="audit") == 1
    collector.forget("orders")
    assert [name for name, labels in plain(collector) if ("queue", "orders") in labels] == []
    assert value(collector, "queue_message_ack_total", queue="mail", group="billing") == 1
    assert collector.queues() == ()


def test_a_supervisor_shows_its_children_as_one() -> None:
    first, second, whole = full_collector(), full_collector(), QueueMetricsCollector()
    second.connection("memory", up=False)
    for child in (first, second):
        whole.absorb(child.snapshot())
    group = {"queue": "orders", "group": "billing"}
    assert value(whole, "queue_message_ack_total", **group) == 4
    assert value(whole, "queue_wait_time_seconds_count", **group) == 4
    assert value(whole, "queue_wait_time_seconds_sum", **group) == pytest.approx(14.02)
    assert value(whole, "queue_consumers_active", **group) == 4
    assert value(whole, "queue_depth", **group) == 11, "both look at the same broker"
    assert value(whole, "queue_connection_status", broker="memory") == 0, "one that lost it is not hidden"


def test_threads_lose_no_count() -> None:
    collector = QueueMetricsCollector()

    def work() -> None:
        for _ in range(2_000):
            collector.acked("q", "g")
            collector.processed("q", "g", [0.1, 0.2], Outcome.DONE)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(collector, "queue_message_ack_total", queue="q", group="g") == 8_000
    assert value(collector, "queue_processing_duration_seconds_count", queue="q") == 16_000


def test_the_page_stays_in_the_same_order() -> None:
    shuffled = [(f"q{number}", f"g{number % 3}") for number in range(20)]
    pages = set()
    for seed in range(3):
        random.Random(seed).shuffle(shuffled)
        collector = QueueMetricsCollector()
        for queue, group in shuffled:
            collector.acked(queue, group)
        pages.add(collector.render())
    assert len(pages) == 1


def test_numbers_without_labels_and_odd_numbers_are_written_as_prometheus_reads_them() -> None:
    collector = QueueMetricsCollector()
    gauge = Numbers("x", MetricKind.GAUGE, ("a",), "with \\ and\nnewline")
    for name, number in (("inf", float("inf")), ("ninf", float("-inf")), ("nan", float("nan")), ("half", 0.5)):
        gauge.put((name,), number)
    collector._metric.families += (gauge,)
    shown = plain(collector)
    assert shown["x", frozenset({("a", "inf")})] == float("inf")
    assert shown["x", frozenset({("a", "ninf")})] == float("-inf")
    assert str(shown["x", frozenset({("a", "nan")})]) == "nan"
    assert shown["queue_channel_opens_total", frozenset()] == 0
