from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from godwit.core.clock import from_ms, milliseconds, to_ms
from godwit.core.errors import InvalidSetting
from godwit.core.limits import EARLIEST_MS, LATEST_MS, LONGEST, as_duration, bounded, bounded_ms


@pytest.mark.parametrize(
    ("instant", "expected_ms"),
    [
        (datetime(1, 1, 1, tzinfo=UTC), EARLIEST_MS),
        (datetime(1970, 1, 1, tzinfo=UTC), EARLIEST_MS),
        (datetime(2026, 1, 1, tzinfo=UTC), to_ms(datetime(2026, 1, 1, tzinfo=UTC))),
        (datetime(9999, 12, 31, 23, 59, tzinfo=UTC), LATEST_MS),
    ],
)
def test_every_instant_is_moved_inside_the_limits_and_none_means_never(instant: datetime, expected_ms: int) -> None:
    assert bounded_ms(to_ms(instant)) == expected_ms


@pytest.mark.parametrize("duration", [timedelta.min, timedelta(0), timedelta(seconds=1), timedelta.max])
def test_an_instant_and_a_duration_within_the_limits_add_up_to_an_instant(duration: timedelta) -> None:
    from_ms(bounded_ms(LATEST_MS + milliseconds(bounded(duration))))
    assert LATEST_MS + milliseconds(LONGEST) < 2**53


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (5, timedelta(seconds=5)),
        (0.25, timedelta(milliseconds=250)),
        (timedelta(minutes=1), timedelta(minutes=1)),
        (float("inf"), LONGEST),
        (sys.float_info.max, LONGEST),
        (timedelta.max, LONGEST),
    ],
)
def test_a_number_is_seconds_and_the_longest_is_a_hundred_years(given: Any, expected: timedelta) -> None:
    assert as_duration("after", given) == expected


@pytest.mark.parametrize("given", [-0.001, -5, float("-inf"), timedelta.min, timedelta(microseconds=-1)])
def test_a_negative_duration_is_zero_and_a_warning(given: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert as_duration("after", given) == timedelta(0)
    assert "setting=after" in caplog.text


@pytest.mark.parametrize("given", [True, "5", None, float("nan"), [5]])
def test_what_is_no_duration_is_refused_with_its_name(given: Any) -> None:
    with pytest.raises(InvalidSetting, match="after"):
        as_duration("after", given)
