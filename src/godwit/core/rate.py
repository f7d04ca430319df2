"""Rates such as `14/s`, and the arithmetic by which many processes share one: pure, on values that travel between them.

A rate is kept as one instant, `spoken_ms`: the time until which all messages that may begin are spoken for (the generic
cell rate algorithm). Taking a token moves it forward by one interval; it may lie ahead of now by the burst.
"""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from typing import Final

import msgspec

from godwit.core.clock import milliseconds
from godwit.core.durations import UNITS
from godwit.core.errors import InvalidSetting
from godwit.core.limits import as_count
from godwit.core.names import is_name

MOST_PER_SECOND: Final = 1_000_000
LONGEST_PERIOD_MS: Final = 86_400_000
ROUNDING: Final = 1e-3
"""The part of a token that may be missing: a double keeps an instant of our time to a quarter of a microsecond."""
_TEXT: Final = re.compile(r"\s*(\d{1,9})\s*/\s*(\d{0,6})\s*(ms|s|min|m|h|d)\s*")
_FORM: Final = "a rate such as '14/s', '600/min' or '5/10s', at most 1,000,000/s and over a day at most"


@dataclass(frozen=True, slots=True)
class Rate:
    """How many messages may begin in a time, over all workers and processes together.

    `burst` is how many may begin at once after a rest; by default what the rate gives in a second, 1 at least.
    Consumers that give the same `name` share one rate, for instance that of a provider's account; without a name a
    rate belongs to the consumer's group.
    """

    rate: str
    _: KW_ONLY
    burst: int | None = None
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        _interval_ms(self.rate)
        if self.burst is not None:
            object.__setattr__(self, "burst", as_count("burst", self.burst))
        if self.name and not is_name(self.name):
            raise InvalidSetting("rate", self.name, "a name: letters, digits and . _ : @ / + -")

    @property
    def interval_ms(self) -> float:
        """How far apart two messages are when they come evenly."""
        return _interval_ms(self.rate)

    @property
    def most_at_once(self) -> int:
        """The burst: how many messages may begin at once after a rest."""
        return self.burst or max(1, round(1_000 / self.interval_ms))


def _interval_ms(rate: object) -> float:
    match = _TEXT.fullmatch(rate) if isinstance(rate, str) else None
    if match is None:
        raise InvalidSetting("rate", rate, _FORM)
    count, period_ms = int(match[1]), int(match[2] or 1) * milliseconds(UNITS[match[3]])
    if not count or not 0 < period_ms <= LONGEST_PERIOD_MS or count * 1_000 > MOST_PER_SECOND * period_ms:
        raise InvalidSetting("rate", rate, _FORM)
    return period_ms / count


def as_rate(value: Rate | str | None) -> Rate | None:
    """Return what a caller gave as a rate: a text such as `14/s`, a `Rate`, or none."""
    if value is None or isinstance(value, Rate):
        return value
    return Rate(value)


class TokenState(msgspec.Struct, frozen=True, kw_only=True):
    """A shared rate as all processes see it; `places` are the queues and groups it holds back, for people."""

    spoken_ms: float
    rate: str
    places: tuple[str, ...] = ()


class CellRate:
    """The arithmetic of one rate.

    A block of tokens is taken at once and used within `block_ms`. Half of the burst is for what may be taken at once,
    the other half for blocks taken earlier and used late, so that no stretch of time sees more than the burst beyond
    the rate.
    """

    def __init__(self, rate: Rate) -> None:
        self.interval_ms = rate.interval_ms
        burst = rate.most_at_once
        self.at_once = max(1, burst // 2)
        self.block_ms = (burst - self.at_once) * self.interval_ms

    def take(self, spoken_ms: float, now_ms: float, wanted: int) -> tuple[int, float]:
        """Return how many of the tokens wanted there are, and the instant until which they are spoken for then.

        An instant too far ahead comes from a clock that ran ahead: it counts as the burst, no more.
        """
        ahead_ms = self.at_once * self.interval_ms
        begin = min(max(spoken_ms, now_ms), now_ms + ahead_ms)
        taken = min(wanted, int((ahead_ms - (begin - now_ms)) / self.interval_ms + ROUNDING))
        return taken, begin + taken * self.interval_ms

    def next_ms(self, spoken_ms: float, now_ms: float) -> float:
        """Return when the next token can be taken."""
        ahead_ms = self.at_once * self.interval_ms
        return max(now_ms, min(spoken_ms, now_ms + ahead_ms) + self.interval_ms - ahead_ms)
