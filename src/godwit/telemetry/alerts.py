"""Alerts: rules over readings, with hysteresis.

An alert fires once when a value rises above its threshold. It clears when `clear_after` evaluations in a row found the
value at or below `clear_at`, which lies below the threshold; until then it is neither repeated nor taken back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal

import msgspec

from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms, milliseconds
from godwit.core.errors import InvalidSetting
from godwit.core.settings import DEFAULTS, AlertThresholds

CLEAR_AT: Final = 0.8
CLEAR_AFTER: Final = 3


class AlertName(StrEnum):
    """Every alert there is."""

    HIGH_QUEUE_DEPTH = "HIGH_QUEUE_DEPTH"
    HIGH_RETRY_RATE = "HIGH_RETRY_RATE"
    HIGH_ERROR_RATE = "HIGH_ERROR_RATE"
    SLOW_PROCESSING = "SLOW_PROCESSING"
    POISON_MESSAGE = "POISON_MESSAGE"


ALERT_OF_THRESHOLD: Final[Mapping[str, AlertName]] = {
    "queue_depth": AlertName.HIGH_QUEUE_DEPTH,
    "retry_rate": AlertName.HIGH_RETRY_RATE,
    "error_rate": AlertName.HIGH_ERROR_RATE,
    "processing_time": AlertName.SLOW_PROCESSING,
    "poison_messages": AlertName.POISON_MESSAGE,
}
"""The alert that each field of `AlertThresholds` is for."""


class AlertRule(msgspec.Struct, frozen=True, kw_only=True):
    """When an alert fires and when it clears."""

    name: AlertName
    threshold: float
    clear_at: float
    clear_after: int = CLEAR_AFTER


class Reading(msgspec.Struct, frozen=True):
    """A value as found; `subject` says where: a queue, or `queue/group`."""

    name: AlertName
    subject: str
    value: float


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """What sinks get. `value` is the reading that fired or cleared the alert."""

    name: AlertName
    state: Literal["firing", "cleared"]
    subject: str
    value: float
    threshold: float
    at: datetime


def rules(thresholds: AlertThresholds = DEFAULTS.monitoring.alert_thresholds) -> tuple[AlertRule, ...]:
    """Return a rule for every alert; readings of times are in milliseconds."""
    return tuple(_rule(name, key, getattr(thresholds, key)) for key, name in ALERT_OF_THRESHOLD.items())


def _rule(name: AlertName, key: str, threshold: object) -> AlertRule:
    value = milliseconds(threshold) if isinstance(threshold, timedelta) else threshold
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InvalidSetting(f"alert threshold {key}", threshold, "a number of 0 or more")
    return AlertRule(name=name, threshold=value, clear_at=value * CLEAR_AT)


class AlertRules:
    """Remembers which alerts are firing, by name and subject."""

    def __init__(self, rules: Iterable[AlertRule], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self._clock = clock
        self._calm: dict[tuple[AlertName, str], int] = {}

    @property
    def firing(self) -> frozenset[tuple[AlertName, str]]:
        """What fired and has not cleared."""
        return frozenset(self._calm)

    def evaluate(self, readings: Iterable[Reading]) -> list[Alert]:
        """Return what fires and what clears now; a subject that is no longer read counts as zero."""
        found = {(reading.name, reading.subject): reading.value for reading in readings}
        found |= {key: 0.0 for key in self._calm if key not in found}
        changes: list[Alert] = []
        for (name, subject), value in found.items():
            state = self._judge(name, subject, value)
            if state is not None:
                changes.append(
                    Alert(
                        name=name,
                        state=state,
                        subject=subject,
                        value=value,
                        threshold=self._rules[name].threshold,
                        at=from_ms(self._clock.now_ms()),
                    )
                )
        return changes

    def _judge(self, name: AlertName, subject: str, value: float) -> Literal["firing", "cleared"] | None:
        rule, key = self._rules.get(name), (name, subject)
        if rule is None or math.isnan(value):
            return None
        if key not in self._calm:
            if value <= rule.threshold:
                return None
            self._calm[key] = 0
            return "firing"
        self._calm[key] = self._calm[key] + 1 if value <= rule.clear_at else 0
        if self._calm[key] < rule.clear_after:
            return None
        del self._calm[key]
        return "cleared"
