"""Not faster than so many a second: a token bucket."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

from godwit.core.clock import Clock
from godwit.core.errors import InvalidSetting
from godwit.telemetry.window import MONOTONIC_CLOCK

Sleep = Callable[[float], Awaitable[None]]

BURST_SECONDS: Final = 0.1


class TokenBucket:
    """Lets through `rate` things a second on average, at most a tenth of a second's worth (at least one) at once."""

    def __init__(self, rate: float, *, clock: Clock = MONOTONIC_CLOCK, sleep: Sleep = asyncio.sleep) -> None:
        if not 0 < rate < math.inf:
            raise InvalidSetting("rate", rate, "a number above 0, per second")
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._burst = max(1, int(rate * BURST_SECONDS))
        self._tokens = float(self._burst)
        self._filled_ms = clock.now_ms()

    async def take(self, wanted: int) -> int:
        """Wait until some may pass; return how many, at most `wanted`."""
        granted = min(wanted, self._burst)
        while self._fill() < granted:
            await self._sleep((granted - self._tokens) / self._rate)
        self._tokens -= granted
        return granted

    def _fill(self) -> float:
        now_ms = self._clock.now_ms()
        gained = max(0, now_ms - self._filled_ms) * self._rate / 1000
        self._filled_ms = now_ms
        self._tokens = min(float(self._burst), self._tokens + gained)
        return self._tokens
