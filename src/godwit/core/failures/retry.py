"""When to try again: pure rules; randomness comes in as a number between 0 and 1."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random
from typing import TypeVar

import msgspec
from msgspec.structs import force_setattr

from godwit.core.errors import InvalidSetting
from godwit.core.limits import as_choice, as_count, as_number, as_time_setting, bounded

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

    `max_attempts` counts tries that failed, the first included. `jitter` is the largest share of a delay that chance
    may add. A postponement is no failure: it has a limit of its own, and a deadline counted from the first of them.
    """

    max_attempts: int = 3
    strategy: Strategy = Strategy.EXPONENTIAL
    initial_delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(minutes=5)
    multiplier: float = 2.0
    jitter: float = 0.0
    by_kind: dict[str, Strategy] = {}
    max_postponements: int = 1_000
    postponement_deadline: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        """Refuse impossible values; bring what is meant to be without end inside the limits."""
        force_setattr(self, "max_attempts", as_count("max_attempts", self.max_attempts))
        force_setattr(self, "strategy", as_choice("strategy", self.strategy, Strategy))
        force_setattr(self, "initial_delay", as_time_setting("initial_delay", self.initial_delay))
        force_setattr(self, "max_delay", as_time_setting("max_delay", self.max_delay))
        multiplier = as_number("multiplier", self.multiplier, 1, sys.float_info.max, "1 or more, not infinite")
        force_setattr(self, "multiplier", multiplier)
        force_setattr(self, "jitter", as_number("jitter", self.jitter, 0, 1, "0 to 1"))
        force_setattr(self, "max_postponements", as_count("max_postponements", self.max_postponements, least=0))
        deadline = as_time_setting("postponement_deadline", self.postponement_deadline)
        force_setattr(self, "postponement_deadline", deadline)
        if self.by_kind != {}:
            force_setattr(self, "by_kind", _strategies(self.by_kind))

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
                plain = multiplied(self.initial_delay, self.max_delay, attempt)
            case Strategy.EXPONENTIAL:
                plain = doubled(self.initial_delay, self.max_delay, attempt=attempt, multiplier=self.multiplier)
        return bounded(plain * (1 + self.jitter * jitter))

    def may_postpone(self, *, postponements: int, since: datetime | None, now: datetime) -> bool:
        """Say whether a message may be postponed once more; `since` is when it was for the first time."""
        return postponements < self.max_postponements and (since is None or now - since <= self.postponement_deadline)


def _strategies(by_kind: object) -> dict[str, Strategy]:
    if not isinstance(by_kind, dict) or not all(isinstance(kind, str) for kind in by_kind):
        raise InvalidSetting("by_kind", by_kind, "a dict from kinds of errors to strategies")
    return {kind: as_choice(f"by_kind.{kind}", strategy, Strategy) for kind, strategy in by_kind.items()}


class Backoff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The delay a broker itself applies when a lease ran out in silence: it doubles with every delivery."""

    minimum: timedelta = timedelta(seconds=10)
    maximum: timedelta = timedelta(minutes=10)

    def __post_init__(self) -> None:
        """Refuse impossible values; bring what is meant to be without end inside the limits."""
        force_setattr(self, "minimum", as_time_setting("backoff.minimum", self.minimum))
        force_setattr(self, "maximum", as_time_setting("backoff.maximum", self.maximum))
        if self.minimum > self.maximum:
            raise InvalidSetting("backoff", (self.minimum, self.maximum), "0 <= minimum <= maximum")

    def delay(self, *, attempt: int) -> timedelta:
        """Return min(minimum * 2^(attempt - 1), maximum)."""
        return doubled(self.minimum, self.maximum, attempt=attempt, multiplier=2)


def doubled(initial: timedelta, maximum: timedelta, *, attempt: int, multiplier: float) -> timedelta:
    """Return min(initial * multiplier^(attempt - 1), maximum), also for attempts whose power would overflow."""
    exponent = attempt - 1
    if exponent > _LARGEST_EXPONENT and multiplier > 1:
        return maximum if initial else initial
    try:
        return multiplied(initial, maximum, multiplier**exponent)
    except OverflowError:
        return maximum if initial else initial


def multiplied(duration: timedelta, maximum: timedelta, factor: float) -> timedelta:
    """Return min(duration * factor, maximum), also for products that no timedelta can hold."""
    seconds = duration.total_seconds() * factor
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
