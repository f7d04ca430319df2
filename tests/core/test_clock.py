from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.core.clock import EPOCH, ManualClock, SystemClock, from_ms, milliseconds, to_ms, utc_now


def test_the_system_clock_tells_the_machines_time() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= SystemClock().now_ms() <= time.time_ns() // 1_000_000


def test_a_manual_clock_moves_only_when_told_to() -> None:
    clock = ManualClock(1_000)
    assert (clock.now_ms(), clock.now_ms()) == (1_000, 1_000)
    clock.advance(timedelta(seconds=2))
    assert clock.now_ms() == 3_000
    clock.advance(timedelta(seconds=-1))
    assert clock.now_ms() == 2_000


@given(st.integers(0, 253_402_300_799_999))
def test_an_instant_in_milliseconds_comes_back(instant_ms: int) -> None:
    assert to_ms(from_ms(instant_ms)) == instant_ms


def test_an_instant_is_the_same_in_every_zone() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert to_ms(noon.astimezone(timezone(timedelta(hours=9)))) == to_ms(noon) == 1_772_366_400_000


def test_a_naive_instant_is_an_error() -> None:
    with pytest.raises(TypeError):
        to_ms(datetime(2026, 3, 1))


@pytest.mark.parametrize(("micros", "expected"), [(0, 0), (999, 0), (1_000, 1), (1_999, 1), (-1, -1)])
def test_durations_are_whole_milliseconds_rounded_down(micros: int, expected: int) -> None:
    assert milliseconds(timedelta(microseconds=micros)) == expected


def test_now_is_aware() -> None:
    assert utc_now().utcoffset() == timedelta(0)
    assert EPOCH.timestamp() == 0
