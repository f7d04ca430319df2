"""The circuit breaker's rules: closed, open, half-open; pure, on values that travel between processes."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

import msgspec

from godwit.core.clock import milliseconds
from godwit.core.errors import InvalidSetting


class Circuit(StrEnum):
    """Whether work may go on."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerRule(msgspec.Struct, frozen=True, kw_only=True):
    """When a breaker opens and how it is tried again."""

    failure_threshold: int = 5
    reset_timeout: timedelta = timedelta(seconds=30)
    half_open_probes: int = 1

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        if self.failure_threshold < 1:
            raise InvalidSetting("failure_threshold", self.failure_threshold, "1 or more")
        if self.reset_timeout <= timedelta(0):
            raise InvalidSetting("reset_timeout", self.reset_timeout, "more than 0")
        if self.half_open_probes < 1:
            raise InvalidSetting("half_open_probes", self.half_open_probes, "1 or more")


class BreakerState(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker as all processes see it.

    `until_ms` is when an open one may be tried, or when a half-open one whose prober fell silent may be tried again.
    """

    circuit: Circuit = Circuit.CLOSED
    until_ms: int = 0
    prober: str | None = None

    def may_probe(self, now_ms: int) -> bool:
        """Say whether somebody may try now."""
        return self.circuit is not Circuit.CLOSED and now_ms >= self.until_ms


CLOSED = BreakerState()


def opened(rule: BreakerRule, now_ms: int) -> BreakerState:
    """Return the state after too many failures, or a failed probe."""
    return BreakerState(circuit=Circuit.OPEN, until_ms=now_ms + milliseconds(rule.reset_timeout))


def probing(rule: BreakerRule, prober: str, now_ms: int) -> BreakerState:
    """Return the state while one process tries."""
    return BreakerState(circuit=Circuit.HALF_OPEN, until_ms=now_ms + milliseconds(rule.reset_timeout), prober=prober)
