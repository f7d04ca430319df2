"""Each recommendation appears on a history built to deserve it, and is absent on one that does not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from godwit.pipeline.report.advice import (
    Advice,
    AdviceVerdict,
    GroupLimits,
    TracedMessage,
    advise,
    concurrency,
    fewer_attempts,
    lease_length,
    queue_limit,
    spread,
    time_to_live,
    wilson,
)
from godwit.pipeline.report.model import Attempts, GroupFigures, ScheduleLateness
from godwit.pipeline.report.simulation import most_overlapping, percentile, waits

START = datetime(2026, 5, 1, tzinfo=UTC)


def group(**changes: Any) -> GroupFigures:
    plain = GroupFigures(
        queue="orders",
        group="billing",
        enqueued=10_000,
        delivered=10_000,
        processed=10_000,
        failed=0,
        expired=0,
        retries=0,
        leases_expired=0,
        acks_refused=0,
        handed_back=0,
        peak_depth=100,
        wait_p50=1,
        wait_p95=20,
        wait_p99=50,
        wait_max=60,
        run_p50=5,
        run_p95=10,
        run_p99=20,
        first_at=START,
        last_at=START + timedelta(hours=1),
    )
    return msgspec.structs.replace(plain, **changes)


def attempt(earlier: int, succeeded: int, failed: int) -> Attempts:
    return Attempts(
        queue="orders", group="billing", earlier_failures=earlier, succeeded=succeeded, failed=failed, run_ms=1_000
    )


def test_attempts_that_never_succeed_are_saved_and_counted_exactly() -> None:
    advice = fewer_attempts(group(), [attempt(0, 9_000, 2_000), attempt(1, 600, 1_400), attempt(2, 2, 1_398)])
    assert advice.verdict is AdviceVerdict.CHANGE
    assert "max_attempts = 2" in advice.text
    assert "1,400 runs" in advice.text
    assert "given up 2 messages" in advice.text


def test_attempts_that_succeed_are_kept_and_few_are_not_judged() -> None:
    useful = fewer_attempts(group(), [attempt(0, 9_000, 2_000), attempt(1, 600, 1_400), attempt(2, 200, 1_200)])
    assert useful.verdict is AdviceVerdict.KEEP
    few = fewer_attempts(group(), [attempt(0, 9_000, 90), attempt(1, 0, 90)])
    assert few.verdict is AdviceVerdict.UNKNOWN


def test_a_limit_is_fitted_to_the_depths_seen() -> None:
    assert "max_size = 200 instead of no limit" in queue_limit(group(), GroupLimits()).text
    assert queue_limit(group(peak_depth=95), GroupLimits(max_size=100)).verdict is AdviceVerdict.CHANGE
    assert queue_limit(group(), GroupLimits(max_size=5_000)).verdict is AdviceVerdict.CHANGE
    assert queue_limit(group(), GroupLimits(max_size=1_000)).verdict is AdviceVerdict.KEEP
    assert queue_limit(group(enqueued=999), GroupLimits()).verdict is AdviceVerdict.UNKNOWN


def test_a_time_to_live_is_named_where_some_wait_far_longer() -> None:
    """Back-tested: it says how many of the messages it had given up, by the same rule as the broker's."""
    waited = [TracedMessage(0, wait, wait + 5, wait, 5) for wait in [*[20] * 9_993, *[10_001] * 5, 9_999, 3_600_000]]

    def advice(limits: GroupLimits = GroupLimits(), **changes: Any) -> Advice:  # noqa: B008 # frozen
        return time_to_live(group(**{"wait_max": 3_600_000, **changes}), limits, lambda *_: waited)

    assert advice().verdict is AdviceVerdict.CHANGE
    assert "a ttl of that length had given up 6 of 10,000 messages" in advice().text
    assert advice(GroupLimits(ttl=timedelta(hours=2))).verdict is AdviceVerdict.KEEP
    assert advice(wait_max=60).verdict is AdviceVerdict.KEEP
    assert advice(delivered=10).verdict is AdviceVerdict.UNKNOWN
    assert advice(delivered=12_000).verdict is AdviceVerdict.UNKNOWN  # tried again: waiting is not age
    assert advice(delivered=12_000, enqueued=12_000).verdict is AdviceVerdict.UNKNOWN  # a fifth cannot be followed


def late(**changes: Any) -> ScheduleLateness:
    plain = ScheduleLateness(
        queue="orders",
        group="billing",
        messages=10_000,
        early=0,
        late_p50=10,
        late_p95=90_000,
        late_p99=110_000,
        late_max=170_000,
        most_in_a_minute=6_000,
        fullest_minute=START,
    )
    return msgspec.structs.replace(plain, **changes)


def test_schedules_that_crowd_a_minute_and_are_late_are_spread() -> None:
    advice = spread(late())
    assert advice.verdict is AdviceVerdict.CHANGE
    assert "jitter window of 3 min" in advice.text
    assert spread(late(late_p95=100)).verdict is AdviceVerdict.KEEP
    assert spread(late(most_in_a_minute=500)).verdict is AdviceVerdict.KEEP
    assert spread(late(messages=600, most_in_a_minute=600)).verdict is AdviceVerdict.UNKNOWN


def test_leases_that_run_out_under_living_handlers_are_lengthened() -> None:
    assert lease_length(group(leases_expired=200, acks_refused=190)).verdict is AdviceVerdict.CHANGE
    crashed = lease_length(group(leases_expired=200, acks_refused=0))
    assert crashed.verdict is AdviceVerdict.KEEP
    assert lease_length(group(delivered=500, leases_expired=100, acks_refused=100)).verdict is AdviceVerdict.UNKNOWN


def traced(slots: int, load: float, *, noise: int = 0) -> list[TracedMessage]:
    """Return what a queue with so many slots would have journaled at a load."""
    draw = random.Random(5)
    runs = [draw.randint(50, 150) for _ in range(5_000)]
    ready, now = [], 0.0
    for _ in runs:
        now += draw.expovariate(load * slots / 100)
        ready.append(int(now))
    waited = [wait + noise for wait in waits(ready, runs, slots)]
    return [
        TracedMessage(at, at + wait, at + wait + run, wait, run)
        for at, wait, run in zip(ready, waited, runs, strict=True)
    ]


def slots_advice(trace: Sequence[TracedMessage]) -> Advice:
    wait_p95 = int(percentile([one.wait_ms for one in trace], 0.95))
    return concurrency(group(wait_p95=wait_p95, processed=len(trace)), lambda *_: trace)


def test_slots_are_added_where_the_model_reproduces_the_waits() -> None:
    advice = slots_advice(traced(4, 1.05))
    assert advice.verdict is AdviceVerdict.CHANGE
    assert "instead of 4" in advice.text


def test_slots_that_fit_are_kept() -> None:
    assert slots_advice(traced(4, 0.75)).verdict is AdviceVerdict.KEEP


def test_slots_are_not_judged_where_the_model_does_not_reproduce_the_waits() -> None:
    advice = slots_advice(traced(4, 0.7, noise=5_000))
    assert advice.verdict is AdviceVerdict.UNKNOWN
    assert "something else" in advice.text


def test_all_advice_comes_with_what_should_change_first() -> None:
    found = advise(
        [group(), group(group="small", enqueued=5, delivered=5, processed=5)],
        [attempt(0, 9_000, 2_000), attempt(1, 0, 2_000)],
        [late()],
        limits={},
        trace=lambda *_: traced(4, 0.75),
    )
    verdicts = [advice.verdict for advice in found]
    assert verdicts == sorted(verdicts, key=list(AdviceVerdict).index)
    assert {advice.subject for advice in found if advice.verdict is AdviceVerdict.CHANGE} == {
        "max_attempts",
        "max_size",
        "schedules",
    }
    assert {advice.verdict for advice in found if advice.group == "small"} == {AdviceVerdict.UNKNOWN}


def test_the_parts_of_the_model_count_right() -> None:
    assert waits([0, 0, 0, 10], [10, 10, 10, 5], 2) == [0, 0, 10, 0]
    assert most_overlapping([(0, 10), (5, 15), (10, 20)]) == 2
    assert percentile([1, 2, 3, 4], 0.5) == 2.0
    low, high = wilson(0, 1_000)
    assert low == 0.0
    assert 0.003 < high < 0.005
