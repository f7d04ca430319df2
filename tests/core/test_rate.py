"""Rates as text, and the arithmetic of sharing one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.core.errors import InvalidSetting
from godwit.core.rate import CellRate, Rate, as_rate

NOW_MS = 1_795_106_923_230.0


@pytest.mark.parametrize(
    ("text", "interval_ms", "burst"),
    [
        ("14/s", 1_000 / 14, 14),
        (" 600 / min ", 100, 10),
        ("5/10s", 2_000, 1),
        ("1/d", 86_400_000, 1),
        ("3/100ms", 100 / 3, 30),
        ("1000000/s", 0.001, 1_000_000),
    ],
)
def test_a_rate_is_read_from_its_text(text: str, interval_ms: float, burst: int) -> None:
    rate = Rate(text)
    assert rate.interval_ms == pytest.approx(interval_ms)
    assert rate.most_at_once == burst


@pytest.mark.parametrize(
    "text",
    ["", "14", "0/s", "-1/s", "14/", "14/fortnight", "1.5/s", "14/s/s", "1000001/s", "1/0s", "1/999999d", 14, b"1/s"],
)
def test_what_is_no_rate_is_refused_with_the_form(text: Any) -> None:
    with pytest.raises(InvalidSetting, match="such as '14/s'"):
        Rate(text)


@pytest.mark.parametrize("burst", [0, -1, True, "3"])
def test_an_impossible_burst_is_refused(burst: Any) -> None:
    with pytest.raises(InvalidSetting, match="burst"):
        Rate("1/s", burst=burst)


def test_a_name_is_a_name() -> None:
    assert Rate("1/s", name="twilio").name == "twilio"
    with pytest.raises(InvalidSetting, match="name"):
        Rate("1/s", name="two words")


def test_none_and_rates_stay_what_they_are() -> None:
    assert as_rate(None) is None
    assert as_rate(Rate("1/s", burst=2)) == Rate("1/s", burst=2)
    assert as_rate("1/s") == Rate("1/s")


@given(
    rate=st.sampled_from([Rate("14/s"), Rate("1/s"), Rate("5/10s"), Rate("200/s", burst=3), Rate("7/s", burst=100)]),
    steps=st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 50), st.floats(0, 1)), max_size=60),
)
def test_no_stretch_of_time_sees_more_than_the_burst_beyond_the_rate(
    rate: Rate, steps: list[tuple[int, int, float]]
) -> None:
    bucket, spoken_ms, now_ms = CellRate(rate), 0.0, NOW_MS
    used: list[tuple[float, int]] = []
    for pause_ms, wanted, late in steps:
        now_ms += pause_ms
        tokens, spoken_ms = bucket.take(spoken_ms, now_ms, wanted)
        assert 0 <= tokens <= wanted
        if tokens:
            used.append((now_ms + late * bucket.block_ms, tokens))
    used.sort()
    for first, (begin_ms, _) in enumerate(used):
        total = 0
        for at_ms, tokens in used[first:]:
            total += tokens
            assert total <= rate.most_at_once + (at_ms - begin_ms) / rate.interval_ms + 0.01


def test_the_next_token_is_there_when_it_was_promised() -> None:
    bucket = CellRate(Rate("10/s"))
    tokens, spoken_ms = bucket.take(0, NOW_MS, 100)
    assert tokens == 5, "half of the burst; the other half is for blocks used late"
    next_ms = bucket.next_ms(spoken_ms, NOW_MS)
    assert bucket.take(spoken_ms, next_ms - 1, 1)[0] == 0
    assert bucket.take(spoken_ms, next_ms, 1)[0] == 1


@pytest.mark.parametrize("text", ["30/s", "3/s", "7/s", "1/min", "999/s", "1000000/s"])
@pytest.mark.parametrize("burst", [1, 2, 3, None])
def test_the_first_token_is_there_at_once(text: str, burst: int | None) -> None:
    assert CellRate(Rate(text, burst=burst)).take(0, NOW_MS, 1)[0] == 1


def test_an_instant_from_a_clock_that_ran_ahead_holds_nobody_back_for_longer_than_the_burst() -> None:
    bucket = CellRate(Rate("10/s"))
    a_day_ahead = 86_400_000.0
    assert bucket.next_ms(a_day_ahead, 0) <= 1_000
    assert bucket.take(a_day_ahead, 0, 1) == (0, 500)
