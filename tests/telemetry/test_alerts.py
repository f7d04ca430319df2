from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.core.clock import ManualClock, from_ms
from godwit.core.errors import InvalidSetting
from godwit.core.settings import AlertThresholds
from godwit.telemetry.alerts import CLEAR_AFTER, Alert, AlertName, AlertRules, Reading, rules

DEPTH = AlertName.HIGH_QUEUE_DEPTH


def states(series: Sequence[float], threshold: int = 100) -> list[tuple[int, str]]:
    """Return when an alert on depth fires and clears over a series of readings."""
    engine = AlertRules(rules(AlertThresholds(queue_depth=threshold)), clock=ManualClock())
    return [
        (index, change.state)
        for index, value in enumerate(series)
        for change in engine.evaluate([Reading(DEPTH, "orders/billing", value)])
    ]


def test_the_five_alerts_have_their_names_and_default_thresholds() -> None:
    assert {rule.name.value: rule.threshold for rule in rules()} == {
        "HIGH_QUEUE_DEPTH": 1000,
        "HIGH_RETRY_RATE": 0.3,
        "HIGH_ERROR_RATE": 0.05,
        "SLOW_PROCESSING": 30_000,
        "POISON_MESSAGE": 0,
    }


def test_thresholds_come_from_the_settings() -> None:
    found = {rule.name: rule.threshold for rule in rules(AlertThresholds(queue_depth=500, error_rate=0.1))}
    assert found[AlertName.HIGH_QUEUE_DEPTH] == 500
    assert found[AlertName.HIGH_ERROR_RATE] == 0.1
    assert found[AlertName.HIGH_RETRY_RATE] == 0.3


@pytest.mark.parametrize(
    "thresholds",
    [{"queue_depth": -1}, {"queue_depth": True}, {"error_rate": float("nan")}, {"retry_rate": "1"}],
)
def test_thresholds_that_make_no_sense_are_refused(thresholds: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(thresholds))):
        rules(AlertThresholds(**thresholds))


@pytest.mark.parametrize("name", AlertName)
def test_an_alert_carries_its_name_value_and_threshold(name: AlertName) -> None:
    clock = ManualClock()
    rule = next(rule for rule in rules() if rule.name is name)
    (alert,) = AlertRules([rule], clock=clock).evaluate([Reading(name, "orders", rule.threshold + 1)])
    assert alert == Alert(
        name=name,
        state="firing",
        subject="orders",
        value=rule.threshold + 1,
        threshold=rule.threshold,
        at=from_ms(clock.now_ms()),
    )


def test_it_fires_once_above_the_threshold_and_not_at_it() -> None:
    assert states([100, 101, 500, 101, 90]) == [(1, "firing")]


def test_it_clears_after_three_calm_evaluations_below_the_lower_bound() -> None:
    assert states([101, 80, 80, 80, 80]) == [(0, "firing"), (3, "cleared")]
    assert states([101, 80, 80, 81, 80, 80]) == [(0, "firing")], "the count begins anew"


def test_a_value_between_the_bounds_neither_fires_nor_clears() -> None:
    assert states([99] * 50) == []
    assert states([101] + [99] * 50) == [(0, "firing")]


def test_a_threshold_of_zero_clears_when_nothing_is_left() -> None:
    engine = AlertRules(rules())
    told = [engine.evaluate([Reading(AlertName.POISON_MESSAGE, "q", value)]) for value in (0, 1, 1, 0, 0, 0)]
    assert [alert.state for alerts in told for alert in alerts] == ["firing", "cleared"]


def test_subjects_are_told_apart_and_one_that_is_gone_clears() -> None:
    engine = AlertRules(rules(AlertThresholds(queue_depth=10)))
    (first,) = engine.evaluate([Reading(DEPTH, "a", 11), Reading(DEPTH, "b", 9)])
    assert first.subject == "a"
    (second,) = engine.evaluate([Reading(DEPTH, "a", 11), Reading(DEPTH, "b", 12)])
    assert second.subject == "b"
    told = [engine.evaluate([Reading(DEPTH, "a", 11)]) for _ in range(CLEAR_AFTER)]
    assert [(alert.subject, alert.state) for alerts in told for alert in alerts] == [("b", "cleared")]
    assert engine.firing == {(DEPTH, "a")}


@given(st.lists(st.floats(0, 300, allow_nan=False), max_size=200))
def test_a_noisy_series_never_makes_an_alert_flap(series: list[float]) -> None:
    changes = states(series)
    assert all(one[1] != other[1] for one, other in pairwise(changes)), "firing and cleared take turns"
    fired = [index for index, state in changes if state == "firing"]
    assert all(series[index] > 100 for index in fired)
    assert all(later - earlier > CLEAR_AFTER for earlier, later in pairwise(fired))
    for index, state in changes:
        if state == "cleared":
            assert all(value <= 80 for value in series[index - CLEAR_AFTER + 1 : index + 1])


@given(st.lists(st.floats(81, 119, allow_nan=False), max_size=200))
def test_noise_around_the_threshold_fires_at_most_once(series: list[float]) -> None:
    assert len(states(series)) == any(value > 100 for value in series)
