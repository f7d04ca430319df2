"""When to try again: pure rules; randomness comes in as a number between 0 and 1."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import StrEnum
from random import Random
from typing import TypeVar

import msgspec

from godwit.core.errors import InvalidSetting

T = TypeVar("T")
_LARGEST_EXPONENT = 64


class Strategy(StrEnum):
    """How the delay grows from one attempt to the next."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIXED = "fixed"
    IMMEDIATE = "immediate"
    NONE = "none"


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often and how long after a failure a message is tried again.

    `max_attempts` counts tries, the first included. `jitter` is the largest share of a delay that chance may add.
    """

    max_attempts: int = 3
    strategy: Strategy = Strategy.EXPONENTIAL
    initial_delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(minutes=5)
    multiplier: float = 2.0
    jitter: float = 0.0
    by_kind: dict[str, Strategy] = {}

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        if self.max_attempts < 1:
            raise InvalidSetting("max_attempts", self.max_attempts, "1 or more")
        if self.initial_delay < timedelta(0):
            raise InvalidSetting("initial_delay", self.initial_delay, "0 or more")
        if self.max_delay < timedelta(0):
            raise InvalidSetting("max_delay", self.max_delay, "0 or more")
        if not self.multiplier >= 1:
            raise InvalidSetting("multiplier", self.multiplier, "1 or more")
        if not 0 <= self.jitter <= 1:
            raise InvalidSetting("jitter", self.jitter, "0 to 1")

    def delay(self, *, attempt: int, jitter: float = 0.0, kind: str | None = None) -> timedelta | None:
        """Return how long to wait after failed attempt `attempt`, or None for the dead-letter queue.

        `jitter` is a random number from 0 to 1; `kind` (network, timeout, ...) may select another strategy.
        """
        strategy = self.by_kind.get(kind, self.strategy) if kind is not None else self.strategy
        if attempt >= self.max_attempts or strategy is Strategy.NONE:
            return None
        match strategy:
            case Strategy.IMMEDIATE:
                return timedelta(0)
            case Strategy.FIXED:
                plain = self.initial_delay
            case Strategy.LINEAR:
                plain = min(self.initial_delay * attempt, self.max_delay)
            case Strategy.EXPONENTIAL:
                plain = doubled(self.initial_delay, self.max_delay, attempt=attempt, multiplier=self.multiplier)
        return plain * (1 + self.jitter * jitter)


class Backoff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The delay a broker itself applies when a lease ran out in silence: it doubles with every delivery."""

    minimum: timedelta = timedelta(seconds=10)
    maximum: timedelta = timedelta(minutes=10)

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        if not timedelta(0) <= self.minimum <= self.maximum:
            raise InvalidSetting("backoff", (self.minimum, self.maximum), "0 <= minimum <= maximum")

    def delay(self, *, attempt: int) -> timedelta:
        """Return min(minimum * 2^(attempt - 1), maximum)."""
        return doubled(self.minimum, self.maximum, attempt=attempt, multiplier=2)


def doubled(initial: timedelta, maximum: timedelta, *, attempt: int, multiplier: float) -> timedelta:
    """Return min(initial * multiplier^(attempt - 1), maximum), also for attempts whose power would overflow."""
    exponent = attempt - 1
    if exponent > _LARGEST_EXPONENT and multiplier > 1:
        return maximum if initial else initial
    seconds = initial.total_seconds() * multiplier**exponent
    return maximum if seconds >= maximum.total_seconds() else timedelta(seconds=seconds)


async def execute_with_retry(
    operation: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    sleep: Callable[[float], Awaitable[None]],
    random: Random,
    retryable: Callable[[Exception], bool] = lambda _: True,
    failed: Exception | None = None,
) -> T:
    """Run `operation` until it succeeds or the policy gives up; then raise its last error.

    `failed` is the error of a first attempt that the caller has made. For calls to brokers and stores, never for
    handlers: a handler's retry is a scheduled redelivery.
    """
    attempt = 1
    while True:
        if failed is None:
            try:
                return await operation()
            except Exception as error:  # noqa: BLE001 - raised below, or tried again
                failed = error
        delay = policy.delay(attempt=attempt, jitter=random.random()) if retryable(failed) else None
        if delay is None:
            raise failed
        await sleep(delay.total_seconds())
        attempt += 1
        failed = None
