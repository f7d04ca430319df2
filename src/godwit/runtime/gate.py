"""The gate before pulling: pauses and circuit breakers, as all processes share them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from godwit.admin.control import GATE_PREFIX, PAUSE_PREFIX, pause_key
from godwit.brokers.contract import Place, Shared, SharedEntry
from godwit.core.breaker import BreakerRule, Circuit
from godwit.core.clock import Clock
from godwit.runtime.breaker import PREFIX, Breaker


class Gate(Protocol):
    """What a consumer asks before it pulls."""

    @property
    def is_open(self) -> bool:
        """Whether nothing is held back anywhere."""
        ...

    async def admit(self, place: Place, wanted: int) -> int:
        """Return how many messages may be pulled from a place now."""
        ...

    def begun(self, place: Place, count: int) -> None:
        """Count what was pulled."""
        ...


class SharedGate:
    """Says how much may be pulled from a place; `refresh` learns what other processes decided."""

    def __init__(self, shared: Shared, places: Sequence[Place], *, owner: str, rule: BreakerRule, clock: Clock) -> None:
        self._shared = shared
        self.breakers = {
            place: Breaker(shared, f"{place[0]}#{place[1]}", owner=owner, rule=rule, clock=clock) for place in places
        }
        self._paused: frozenset[str] = frozenset()
        self.seen: Mapping[str, SharedEntry] = {}
        """What was there at the last look; also who maintains the broker and keeps the books for all processes."""

    async def refresh(self) -> bool:
        """Look at the shared state once; say whether pauses were lifted."""
        shared = await self._shared.scan(GATE_PREFIX)
        self.seen = shared
        before, self._paused = self._paused, frozenset(key for key in shared if key.startswith(PAUSE_PREFIX))
        for breaker in self.breakers.values():
            breaker.learn(shared.get(f"{PREFIX}{breaker.name}"))
        return bool(before - self._paused)

    @property
    def is_open(self) -> bool:
        """Whether nothing is held back anywhere."""
        return not self._paused and all(one.state.circuit is Circuit.CLOSED for one in self.breakers.values())

    def paused(self, place: Place) -> bool:
        """Say whether somebody paused the queue or the group."""
        return bool(self._paused) and not self._paused.isdisjoint((pause_key(place[0]), pause_key(*place)))

    async def admit(self, place: Place, wanted: int) -> int:
        """Return how many messages may be pulled from a place now."""
        if self.paused(place):
            return 0
        allowed = await self.breakers[place].admit()
        return wanted if allowed is None else min(allowed, wanted)

    def begun(self, place: Place, count: int) -> None:
        """Count what was pulled: of a half-open breaker these are the probes."""
        self.breakers[place].begun(count)


class Turnstile:
    """One consumer's way through the gate: it remembers when the consumer last came by."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.passed = time.monotonic()
        self.rests_until = 0.0
        """Until then it waits for messages, and nobody expects it."""

    def rest(self, longest: timedelta) -> None:
        """Say that the consumer waits for messages now."""
        self.rests_until = time.monotonic() + longest.total_seconds()

    @property
    def is_open(self) -> bool:
        """Whether nothing is held back anywhere."""
        self.passed = time.monotonic()
        return self._gate.is_open

    async def admit(self, place: Place, wanted: int) -> int:
        """Return how many messages may be pulled from a place now."""
        self.passed = time.monotonic()
        return await self._gate.admit(place, wanted)

    def begun(self, place: Place, count: int) -> None:
        """Count what was pulled."""
        self._gate.begun(place, count)
