from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from godwit.core.journal.queue_time import ClockLag, advanced, behind

HOUR_MS = 3_600_000


def test_behind_a_queues_time_the_clock_moves_it_half_as_fast_until_it_has_caught_up() -> None:
    at_ms, lag = behind(HOUR_MS, 0, None)
    assert (at_ms, lag) == (HOUR_MS, ClockLag(HOUR_MS, 0))
    assert behind(at_ms, 30_000, lag) == (HOUR_MS + 15_000, lag)
    assert lag.reached_ms(HOUR_MS + 15_000) == 30_000
    assert lag.time_ms(2 * HOUR_MS) == 2 * HOUR_MS
    assert lag.reached_ms(3 * HOUR_MS) == 3 * HOUR_MS


def test_a_clock_that_goes_back_once_more_does_not_stop_the_time() -> None:
    at_ms, lag = behind(HOUR_MS, 0, None)
    at_ms, lag = behind(at_ms, 30_000, lag)
    later_ms, lag = behind(at_ms, -HOUR_MS, lag)
    assert later_ms == at_ms
    assert behind(later_ms, -HOUR_MS + 10_000, lag)[0] == at_ms + 5_000


@given(st.lists(st.integers(-HOUR_MS, HOUR_MS), max_size=50))
def test_whatever_the_clock_does_the_time_never_goes_back_and_is_never_behind_it(steps: list[int]) -> None:
    at_ms = clock_ms = 10 * HOUR_MS
    lag = None
    for step in steps:
        clock_ms += step
        before_ms = at_ms
        at_ms, lag = advanced(at_ms, clock_ms, lag)
        assert at_ms >= max(before_ms, clock_ms)
