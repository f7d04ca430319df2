from __future__ import annotations

import sys
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.core.errors import InvalidSetting
from godwit.core.failures.retry import Backoff, RetryPolicy, Strategy, execute_with_retry
from godwit.core.limits import LARGEST_COUNT, LONGEST

SECOND = timedelta(seconds=1)
DELAYS = st.timedeltas(min_value=timedelta(0), max_value=timedelta(hours=1))


def schedule(policy: RetryPolicy, *, jitter: float = 0.0) -> list[float]:
    """Return all delays of a policy, in seconds."""
    delays = (policy.delay(attempt=attempt, jitter=jitter) for attempt in range(1, policy.max_attempts + 1))
    return [delay.total_seconds() for delay in delays if delay is not None]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (RetryPolicy(max_attempts=6, initial_delay=2 * SECOND), [2, 4, 8, 16, 32]),
        (RetryPolicy(max_attempts=5, max_delay=5 * SECOND), [1, 2, 4, 5]),
        (RetryPolicy(max_attempts=4, multiplier=1.5), [1, 1.5, 2.25]),
        (RetryPolicy(max_attempts=5, strategy=Strategy.LINEAR, max_delay=3 * SECOND), [1, 2, 3, 3]),
        (RetryPolicy(max_attempts=4, strategy=Strategy.FIXED, initial_delay=7 * SECOND), [7, 7, 7]),
        (RetryPolicy(max_attempts=3, strategy=Strategy.IMMEDIATE), [0, 0]),
        (RetryPolicy(max_attempts=9, strategy=Strategy.NONE), []),
        (RetryPolicy(max_attempts=1), []),
    ],
)
def test_a_policy_has_exactly_this_schedule(policy: RetryPolicy, expected: list[float]) -> None:
    assert schedule(policy) == expected


def test_the_last_attempt_is_followed_by_the_dead_letter_queue() -> None:
    policy = RetryPolicy(max_attempts=3)
    assert policy.delay(attempt=2) is not None
    assert policy.delay(attempt=3) is None
    assert policy.delay(attempt=4) is None


def test_jitter_of_ten_percent_adds_between_nothing_and_ten_percent() -> None:
    policy = RetryPolicy(max_attempts=2, initial_delay=10 * SECOND, jitter=0.1)
    assert [schedule(policy, jitter=chance) for chance in (0.0, 0.5, 1.0)] == [[10.0], [10.5], [11.0]]


@given(
    policy=st.builds(
        RetryPolicy,
        max_attempts=st.integers(1, 1_000),
        strategy=st.sampled_from(Strategy),
        initial_delay=DELAYS,
        max_delay=DELAYS,
        multiplier=st.floats(1, 100),
        jitter=st.floats(0, 1),
    ),
    attempt=st.integers(1, 2_000),
    chance=st.floats(0, 1),
)
def test_a_delay_never_leaves_its_bounds(policy: RetryPolicy, attempt: int, chance: float) -> None:
    plain, delay = policy.delay(attempt=attempt), policy.delay(attempt=attempt, jitter=chance)
    if plain is None or delay is None:
        assert plain is delay
        assert attempt >= policy.max_attempts or policy.strategy is Strategy.NONE
    else:
        assert plain <= (policy.initial_delay if policy.strategy is Strategy.FIXED else policy.max_delay)
        assert timedelta(0) <= plain <= delay <= plain * (1 + policy.jitter) + timedelta(microseconds=1)


@given(initial=DELAYS, limit=DELAYS, attempt=st.integers(1, 500))
def test_delays_never_shrink_from_one_attempt_to_the_next(initial: timedelta, limit: timedelta, attempt: int) -> None:
    policy = RetryPolicy(max_attempts=10_000, initial_delay=initial, max_delay=limit)
    first, second = policy.delay(attempt=attempt), policy.delay(attempt=attempt + 1)
    assert first is not None
    assert second is not None
    assert first <= second


def test_the_kind_of_an_error_may_select_another_strategy() -> None:
    policy = RetryPolicy(max_attempts=5, by_kind={"validation": Strategy.NONE, "timeout": Strategy.LINEAR})
    assert policy.delay(attempt=3) == 4 * SECOND
    assert policy.delay(attempt=3, kind="network") == 4 * SECOND
    assert policy.delay(attempt=3, kind="timeout") == 3 * SECOND
    assert policy.delay(attempt=1, kind="validation") is None


@pytest.mark.parametrize(
    "settings",
    [
        {"max_attempts": 0},
        {"initial_delay": -SECOND},
        {"max_delay": -SECOND},
        {"multiplier": 0.5},
        {"multiplier": float("nan")},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": float("nan")},
        {"multiplier": float("inf")},
        {"multiplier": True},
        {"max_attempts": 2.5},
        {"max_attempts": True},
        {"max_attempts": float("inf")},
        {"initial_delay": float("nan")},
        {"max_delay": "long"},
        {"strategy": "nonsense"},
        {"by_kind": {"timeout": "nonsense"}},
        {"by_kind": {1: Strategy.NONE}},
        {"by_kind": None},
    ],
)
def test_impossible_policies_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting):
        RetryPolicy(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("multiplier", [1, 2, sys.float_info.max])
def test_a_policy_without_end_has_delays_within_the_limits(strategy: Strategy, multiplier: float) -> None:
    policy = RetryPolicy(
        max_attempts=sys.maxsize,
        initial_delay=timedelta.max,
        max_delay=timedelta.max,
        strategy=strategy,
        multiplier=multiplier,
        jitter=1,
    )
    assert policy.max_attempts == LARGEST_COUNT
    for attempt in (1, 2, 64, 65, 66, LARGEST_COUNT - 1):
        for small in (policy, msgspec.structs.replace(policy, initial_delay=SECOND)):
            delay = small.delay(attempt=attempt, jitter=1.0)
            assert delay is None or timedelta(0) <= delay <= LONGEST
            backoff = Backoff(minimum=small.initial_delay, maximum=timedelta.max)
            assert timedelta(0) <= backoff.delay(attempt=attempt) <= LONGEST


def test_numbers_are_seconds_in_policies() -> None:
    numbers: Any = {"initial_delay": 5, "max_delay": 0.5}
    assert RetryPolicy(**numbers) == RetryPolicy(initial_delay=5 * SECOND, max_delay=SECOND / 2)


@pytest.mark.parametrize("minimum", [-SECOND, timedelta(hours=1), "soon"])
def test_impossible_backoffs_are_refused(minimum: Any) -> None:
    with pytest.raises(InvalidSetting):
        Backoff(minimum=minimum)


def test_a_backoff_doubles_from_its_minimum_to_its_maximum() -> None:
    backoff = Backoff(minimum=10 * SECOND, maximum=60 * SECOND)
    assert [backoff.delay(attempt=attempt).total_seconds() for attempt in (1, 2, 3, 4, 5, 500)] == [
        10,
        20,
        40,
        60,
        60,
        60,
    ]


def test_a_backoff_of_nothing_stays_nothing() -> None:
    assert Backoff(minimum=timedelta(0)).delay(attempt=900) == timedelta(0)


def test_an_impossible_backoff_is_refused() -> None:
    with pytest.raises(InvalidSetting):
        Backoff(minimum=2 * SECOND, maximum=SECOND)


class Flaky:
    """An operation that fails so many times, and a sleep that only remembers."""

    def __init__(self, failures: int) -> None:
        self.failures, self.calls = failures, 0
        self.slept: list[float] = []

    async def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionError(self.calls)
        return "done"

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_an_operation_is_tried_until_it_succeeds() -> None:
    flaky = Flaky(2)
    assert await execute_with_retry(flaky, RetryPolicy(), sleep=flaky.sleep, random=Random(1)) == "done"
    assert flaky.slept == [1, 2]


async def test_the_last_error_is_raised_when_the_policy_gives_up() -> None:
    flaky = Flaky(9)
    with pytest.raises(ConnectionError, match="3"):
        await execute_with_retry(flaky, RetryPolicy(), sleep=flaky.sleep, random=Random(1))


async def test_an_error_that_is_not_retryable_is_raised_at_once() -> None:
    flaky = Flaky(9)
    with pytest.raises(ConnectionError, match="1"):
        await execute_with_retry(flaky, RetryPolicy(), sleep=flaky.sleep, random=Random(1), retryable=lambda _: False)
    assert flaky.slept == []
