"""The circuit breaker's rules: closed, open, half-open; pure, on values that travel between processes.

A breaker protects one downstream: what handlers need and do not run themselves, such as a mail server or a provider's
API. Only errors that say that the downstream is away are counted (`Away`), never those of a message or of the
handler's code.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, fields
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from godwit.core.clock import from_ms, milliseconds
from godwit.core.errors import InvalidSetting
from godwit.core.failures.failure import Away
from godwit.core.limits import as_choice, as_count, as_number, as_time_setting
from godwit.core.names import is_name

MOST_CALLS: Final = 10_000


class Circuit(StrEnum):
    """Whether work may go on."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerRule(msgspec.Struct, frozen=True, kw_only=True):
    """When a breaker opens and how it is tried again.

    It opens when of the last `calls` within `window` at least `failure_threshold` failed, and at least the share
    `failure_rate`. After `reset_timeout` so many messages as `half_open_probes` may try.
    """

    failure_threshold: int = 5
    failure_rate: float = 0.5
    calls: int = 20
    window: timedelta = timedelta(minutes=5)
    reset_timeout: timedelta = timedelta(seconds=30)
    half_open_probes: int = 1
    counts: frozenset[Away] = frozenset(Away)

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        for setting in ("failure_threshold", "calls"):
            force_setattr(self, setting, as_count(setting, getattr(self, setting), most=MOST_CALLS))
        force_setattr(self, "half_open_probes", as_count("half_open_probes", self.half_open_probes))
        rate = as_number("failure_rate", self.failure_rate, 0, 1, "more than 0, up to 1")
        if not rate:
            raise InvalidSetting("failure_rate", self.failure_rate, "more than 0, up to 1")
        force_setattr(self, "failure_rate", rate)
        for setting in ("window", "reset_timeout"):
            duration = as_time_setting(setting, getattr(self, setting))
            if milliseconds(duration) <= 0:
                raise InvalidSetting(setting, getattr(self, setting), "more than 0")
            force_setattr(self, setting, duration)
        counts = self.counts if isinstance(self.counts, Iterable) and not isinstance(self.counts, str) else (None,)
        force_setattr(self, "counts", frozenset(as_choice("counts", kind, Away) for kind in counts) | {Away.AWAY})


@dataclass(frozen=True, slots=True)
class Breaker:
    """The downstream that a consumer needs, by name; consumers that name the same one share the breaker.

    What is left out is as configured (`[breaker]`). `counts` are the errors that count: network, timeout, 5xx, 429.
    """

    name: str
    _: KW_ONLY
    failure_threshold: int | None = None
    failure_rate: float | None = None
    calls: int | None = None
    window: timedelta | float | None = None
    reset_timeout: timedelta | float | None = None
    half_open_probes: int | None = None
    counts: Iterable[Away | str] | None = None

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        if not isinstance(self.name, str) or not is_name(self.name):
            raise InvalidSetting("breaker", self.name, "a name: letters, digits and . _ : @ / + -")
        self.rule(BreakerRule())

    def rule(self, default: BreakerRule) -> BreakerRule:
        """Return the rule of this breaker, where `default` says what it leaves out."""
        said: dict[str, Any] = {
            field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None
        }
        del said["name"]
        return msgspec.structs.replace(default, **said)


SAID_ONLY: Final = frozenset({Away.AWAY})
"""What counts for a consumer that names no downstream: only that a handler says so itself."""


class BreakerState(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker as all processes see it.

    `until_ms` is when an open one may be tried, or when a half-open one whose prober fell silent may be tried again.
    """

    circuit: Circuit = Circuit.CLOSED
    until_ms: int = 0
    prober: str | None = None
    why: str = ""

    def may_probe(self, now_ms: int) -> bool:
        """Say whether a call may be tried now."""
        return self.circuit is not Circuit.CLOSED and now_ms >= self.until_ms

    def text(self, name: str) -> str:
        """Return the state for people: `open until 12:03:20 (smtp: 14 of 20 timeouts)`, in UTC."""
        if self.circuit is Circuit.CLOSED:
            return "closed"
        why = f"{name}: {self.why}" if self.why else name
        if self.circuit is Circuit.HALF_OPEN:
            return f"half-open ({why})"
        return f"open until {from_ms(self.until_ms):%H:%M:%S} ({why})"


CLOSED = BreakerState()


def opened(rule: BreakerRule, now_ms: int, why: str) -> BreakerState:
    """Return the state after too many failures, or a failed probe."""
    return BreakerState(circuit=Circuit.OPEN, until_ms=now_ms + milliseconds(rule.reset_timeout), why=why)


def probing(rule: BreakerRule, prober: str, now_ms: int, why: str) -> BreakerState:
    """Return the state while one process tries."""
    until_ms = now_ms + milliseconds(rule.reset_timeout)
    return BreakerState(circuit=Circuit.HALF_OPEN, until_ms=until_ms, prober=prober, why=why)


_PLURALS: Final = {
    Away.NETWORK: "network errors",
    Away.TIMEOUT: "timeouts",
    Away.SERVER_ERROR: "answers 5xx",
    Away.RATE_LIMIT: "answers 429",
    Away.AWAY: "said to be away",
}


class CallWindow:
    """The last calls of a downstream, from the first failure on: what worked before it says nothing about an outage."""

    def __init__(self, rule: BreakerRule) -> None:
        self._rule = rule
        self._calls: deque[tuple[int, Away | None]] = deque(maxlen=max(rule.calls, rule.failure_threshold))

    def __bool__(self) -> bool:
        """Say whether there was a failure lately."""
        return bool(self._calls)

    def failed(self, away: Away, now_ms: int) -> None:
        """Add a call that failed."""
        self._calls.append((now_ms, away))

    def worked(self, count: int, now_ms: int) -> None:
        """Add calls that worked."""
        if self._calls:
            self._calls.extend([(now_ms, None)] * min(count, self._rule.calls))

    def clear(self) -> None:
        """Forget what was."""
        self._calls.clear()

    def reason_to_open(self, now_ms: int) -> str | None:
        """Say what failed, if it is enough to open the breaker; forget what is too old to count."""
        oldest_ms = now_ms - milliseconds(self._rule.window)
        while self._calls and (self._calls[0][0] < oldest_ms or self._calls[0][1] is None):
            self._calls.popleft()
        failures = Counter(away for _, away in self._calls if away is not None)
        count, calls = failures.total(), len(self._calls)
        if count < self._rule.failure_threshold or count < calls * self._rule.failure_rate:
            return None
        if len(failures) == 1:
            return f"{count} of {calls} {_PLURALS[next(iter(failures))]}"
        parts = ", ".join(f"{number} {_PLURALS[away]}" for away, number in failures.most_common())
        return f"{count} of {calls} failed: {parts}"
