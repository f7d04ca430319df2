"""The last five minutes of every queue and producer, for rates, health and alerts."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from math import isfinite
from typing import Final

import msgspec

from godwit.core.clock import Clock
from godwit.telemetry.instruments import OTHER
from godwit.telemetry.window import Window

WINDOWS: Final = 500
"""Queues, and producers, that have numbers of their own; further ones share those of `other`."""


class Outcome(StrEnum):
    """What a handler's run led to."""

    DONE = "done"
    RETRY = "retry"
    DEAD = "dead"
    POSTPONED = "postponed"


_DONE, _RETRY, _DEAD, _SECONDS, _POISON = range(5)
_COLUMN_OF: Final = {Outcome.DONE: _DONE, Outcome.RETRY: _RETRY, Outcome.DEAD: _DEAD}


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """A queue's last five minutes, or those of all queues."""

    done: int = 0
    retries: int = 0
    failed: int = 0
    poison: int = 0
    run_seconds: float = 0.0
    seconds: float = 1.0

    @property
    def runs(self) -> int:
        """How often a handler ran to an outcome."""
        return self.done + self.retries + self.failed

    @property
    def per_second(self) -> float:
        """Messages done per second."""
        return self.done / self.seconds

    @property
    def error_rate(self) -> float:
        """The share of messages given up among those that came to an end."""
        return _share(self.failed, self.done + self.failed)

    @property
    def retry_rate(self) -> float:
        """The share of runs that led to a retry."""
        return _share(self.retries, self.runs)

    @property
    def average_ms(self) -> float:
        """How long a run took on average."""
        return _share(self.run_seconds * 1000, self.runs)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


class RecentTimes:
    """Sums per queue and per producer; the caller keeps others out meanwhile."""

    def __init__(self, *, clock: Clock, length: timedelta) -> None:
        self._clock, self._length, self._since_ms = clock, length, clock.now_ms()
        self.queues: dict[str, Window] = {}
        self.producers: dict[str, Window] = {}

    def ran(self, queue: str, outcome: Outcome, runs: int, seconds: float) -> None:
        """Add handler runs; a postponement says nothing about the handler."""
        if outcome is Outcome.POSTPONED:
            return
        window = self.queues.get(queue) or self._window(self.queues, queue, columns=5)
        row, sums = window.row(), window.sums
        sums[row + _COLUMN_OF[outcome]] += runs
        sums[row + _SECONDS] += seconds if isfinite(seconds) else 0.0

    def poisoned(self, queue: str, count: int) -> None:
        """Add messages that took their workers down."""
        window = self.queues.get(queue) or self._window(self.queues, queue, columns=5)
        window.sums[window.row() + _POISON] += count

    def produced(self, producer: str, count: int, at_ms: int | None = None) -> None:
        """Add messages of a producer, of now or of a moment ago."""
        window = self.producers.get(producer) or self._window(self.producers, producer, columns=1)
        window.sums[window.row(at_ms)] += count

    def of(self, queue: str | None) -> Recent:
        """Return the sums of one queue, or of all."""
        windows = [window for name, window in self.queues.items() if queue in (None, name)]
        if not windows:
            return Recent()
        sums = [sum(column) for column in zip(*(window.totals() for window in windows), strict=True)]
        return Recent(
            done=int(sums[_DONE]),
            retries=int(sums[_RETRY]),
            failed=int(sums[_DEAD]),
            poison=int(sums[_POISON]),
            run_seconds=sums[_SECONDS],
            seconds=windows[0].seconds(),
        )

    def producer_rates(self) -> dict[str, float]:
        """Return messages per second; a producer silent for the whole window is forgotten."""
        totals = {name: window.totals()[0] for name, window in self.producers.items()}
        for name in [name for name, total in totals.items() if not total]:
            del self.producers[name]
        return {name: totals[name] / window.seconds() for name, window in self.producers.items()}

    def _window(self, windows: dict[str, Window], name: str, *, columns: int) -> Window:
        if len(windows) >= WINDOWS:
            name = OTHER
        return windows.get(name) or windows.setdefault(
            name, Window(columns=columns, clock=self._clock, since_ms=self._since_ms, length=self._length)
        )
