"""The gate before pulling: pauses, rate limits and circuit breakers, as all processes share them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, Protocol

import msgspec

from godwit.admin.control import (
    RateLimit,
    read_hold,
    read_rate_limit,
)
from godwit.brokers.contract import Place, Shared, SharedEntry
from godwit.core.clock import Clock, milliseconds
from godwit.core.error_text import clean
from godwit.core.errors import BrokerClosed, GodwitError, InvalidSetting
from godwit.core.failures.breaker import SAID_ONLY, Breaker, BreakerRule
from godwit.core.logs import get_logger
from godwit.core.shared_keys import GATE, PAUSE, breaker_key, pause_key, rate_key
from godwit.runtime.breaker import QueueCircuitBreaker
from godwit.runtime.delivery.rate_limiter import RateLimiter

LONGEST_RATE_LIMIT: Final = timedelta(days=1)
REASON_CHARACTERS: Final = 200
TRIES: Final = 5
"""How often a rate limit is written that others write at the same moment; the next look at the shared state goes on."""

log = get_logger(__name__)


class Gate(Protocol):
    """What a consumer asks before it pulls."""

    @property
    def is_open(self) -> bool:
        """Whether nothing is held back anywhere."""
        ...

    def opens_within(self, longest: timedelta) -> timedelta:
        """Return how long to wait until something held back by time may be free, at most `longest`."""
        ...

    async def admit(self, place: Place, wanted: int) -> int:
        """Return how many messages may be pulled from a place now."""
        ...

    def is_probing(self, place: Place) -> bool:
        """Say whether what is pulled now tries whether the downstream is back."""
        ...

    async def tokens(self, place: Place, wanted: int) -> int:
        """Return how many messages the declared rate of a place lets begin now."""
        ...

    async def begun(self, place: Place, count: int) -> None:
        """Count what was pulled, also when nothing came."""
        ...


class SharedGate:
    """Says how much may be pulled from a place; `refresh` learns what other processes decided.

    `breaker_of` names the breakers that consumers were given. A place without one has a breaker of its own, which only
    counts what a handler itself says of its downstream (`DownstreamAway`). `limiters` keep the rates that consumers
    declared.
    """

    def __init__(
        self,
        shared: Shared,
        places: Sequence[Place],
        *,
        owner: str,
        rule: BreakerRule,
        clock: Clock,
        breaker_of: Mapping[Place, Breaker] | None = None,
        limiters: Mapping[Place, RateLimiter] | None = None,
    ) -> None:
        self._shared, self._clock = shared, clock
        self._limiters = limiters or {}
        breakers: dict[str, QueueCircuitBreaker] = {}
        declared: dict[str, Breaker] = {}
        self.breakers: dict[Place, QueueCircuitBreaker] = {}
        for place in places:
            breaker = (breaker_of or {}).get(place)
            name = f"{place[0]}#{place[1]}" if breaker is None else breaker.name
            own = msgspec.structs.replace(rule, counts=SAID_ONLY) if breaker is None else breaker.rule(rule)
            if breaker is not None and declared.setdefault(name, breaker) != breaker:
                raise InvalidSetting("breaker", breaker, f"the same rules wherever {name!r} is protected")
            if name not in breakers:
                breakers[name] = QueueCircuitBreaker(shared, name, owner=owner, rule=own, clock=clock)
            self.breakers[place] = breakers[name]
        self._distinct = tuple(breakers.values())
        self._paused: frozenset[str] = frozenset()
        self._rates: dict[Place, RateLimit] = {}
        self._unwritten: set[Place] = set()
        self.seen: Mapping[str, SharedEntry] = {}
        """The entries at the last look; also which processes maintain the broker and run the store's services."""

    async def refresh(self) -> bool:
        """Look at the shared state once; say whether something was lifted."""
        await self._share()
        shared = await self._shared.scan(GATE)
        self.seen = shared
        before, self._paused = self._paused, frozenset(key for key in shared if key.startswith(PAUSE))
        self._log_pauses(before, shared)
        lifted = bool(before - self._paused) | self._learn_rates(shared)
        for breaker in self._distinct:
            held_back = not breaker.is_closed
            breaker.learn(shared.get(breaker_key(breaker.name)))
            lifted |= held_back and breaker.is_closed
        return lifted

    def _log_pauses(self, before: frozenset[str], shared: Mapping[str, SharedEntry]) -> None:
        ours = {key for queue, group in self.breakers for key in (pause_key(queue), pause_key(queue, group))}
        for key in sorted((self._paused - before) & ours):
            hold = read_hold(shared[key].value)
            log.info("paused", place=key.removeprefix(PAUSE), by=hold.by, reason=hold.reason)
        for key in sorted((before - self._paused) & ours):
            log.info("resumed", place=key.removeprefix(PAUSE))

    def _learn_rates(self, shared: Mapping[str, SharedEntry]) -> bool:
        now_ms, before = self._clock.now_ms(), set(self._rates)
        latest_ms = now_ms + milliseconds(LONGEST_RATE_LIMIT)
        for place in self.breakers:
            entry = shared.get(rate_key(*place))
            limit = read_rate_limit(entry.value) if entry is not None else None
            if limit is not None and now_ms < limit.until_ms <= latest_ms:
                self._rates[place] = limit
            elif place not in self._unwritten:
                self._rates.pop(place, None)
        return bool(before - set(self._rates))

    @property
    def is_open(self) -> bool:
        """Whether nothing is held back anywhere."""
        return (
            not self._paused
            and not self._rates
            and all(breaker.is_closed for breaker in self._distinct)
            and all(limiter.empty_until_ms is None for limiter in self._limiters.values())
        )

    def opens_within(self, longest: timedelta) -> timedelta:
        """Return how long to wait until something held back by time may be free, at most `longest`."""
        until_ms = self.held_back_until_ms()
        if until_ms is None:
            return longest
        return min(longest, timedelta(milliseconds=max(1, until_ms - self._clock.now_ms())))

    def held_back_until_ms(self) -> int | None:
        """Return when the first thing that is held back by time may be tried; None when there is none."""
        times = [limit.until_ms for limit in self._rates.values()]
        times += [until for breaker in self._distinct if (until := breaker.open_until_ms) is not None]
        times += [until for limiter in self._limiters.values() if (until := limiter.empty_until_ms) is not None]
        return min(times, default=None)

    def paused(self, place: Place) -> bool:
        """Say whether the queue or the group is paused."""
        return bool(self._paused) and not self._paused.isdisjoint((pause_key(place[0]), pause_key(*place)))

    def limit_rate(self, place: Place, pause: timedelta, reason: str) -> None:
        """Hold pulls from a place back until a time; `publish` tells the other processes."""
        until_ms = self._clock.now_ms() + milliseconds(min(pause, LONGEST_RATE_LIMIT))
        known = self._rates.get(place)
        if known is None or known.until_ms < until_ms:
            self._rates[place] = RateLimit(until_ms=until_ms, reason=clean(reason, limit=REASON_CHARACTERS))
            self._unwritten.add(place)

    async def publish(self) -> None:
        """Tell the other processes what was decided here; what cannot be written now is written at the next look."""
        try:
            await self._share()
        except BrokerClosed:
            pass
        except GodwitError as error:
            log.warning("breakers and rate limits are not shared yet", error=str(error))

    async def _share(self) -> None:
        for breaker in self._distinct:
            await breaker.share()
        for place in tuple(self._unwritten):
            for _ in range(TRIES):
                if place not in self._rates or await self._write_rate(place, self._rates[place]):
                    break
            self._unwritten.discard(place)

    async def _write_rate(self, place: Place, limit: RateLimit) -> bool:
        """Write a rate limit unless a longer one is there; say whether nothing is left to do."""
        left = timedelta(milliseconds=limit.until_ms - self._clock.now_ms())
        if left <= timedelta(0):
            return True
        present = await self._shared.get(rate_key(*place))
        known = read_rate_limit(present.value) if present is not None else None
        if known is not None and known.until_ms >= limit.until_ms:
            return True
        expected = present.version if present is not None else None
        value = msgspec.json.encode(limit)
        if await self._shared.put(rate_key(*place), value, expected=expected, ttl=left) is None:
            return False
        log.warning("group waits for its downstream", queue=place[0], group=place[1], state=limit.text())
        return True

    async def admit(self, place: Place, wanted: int) -> int:
        """Return how many messages may be pulled from a place now."""
        if self.paused(place):
            return 0
        limit = self._rates.get(place)
        if limit is not None:
            if self._clock.now_ms() < limit.until_ms:
                return 0
            del self._rates[place]
        if place in self._limiters and self._limiters[place].empty_until_ms is not None:
            return 0
        allowed = await self.breakers[place].admit()
        return wanted if allowed is None else min(allowed, wanted)

    def is_probing(self, place: Place) -> bool:
        """Say whether what is pulled now tries whether the downstream is back."""
        return self.breakers[place].is_probing

    async def tokens(self, place: Place, wanted: int) -> int:
        """Return how many messages the declared rate of a place lets begin now."""
        limiter = self._limiters.get(place)
        return wanted if limiter is None else await limiter.take(wanted)

    async def begun(self, place: Place, count: int) -> None:
        """Count what was pulled: of a half-open breaker these are the probes."""
        if count:
            self.breakers[place].begun(count)
        if (limiter := self._limiters.get(place)) is not None:
            await limiter.begun(count)

    def texts(self) -> dict[Place, str]:
        """Return what is held back by a breaker or a rate limit, for people."""
        found = {
            place: breaker.state.text(breaker.name) for place, breaker in self.breakers.items() if not breaker.is_closed
        }
        return found | {place: limit.text() for place, limit in self._rates.items()}


class GateView:
    """A consumer's way through the gate: it remembers when the consumer last came by."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.passed = time.monotonic()
        self.rests_until = 0.0
        """Until then the consumer waits for messages, and the watchdog does not expect it."""

    def rest(self, longest: timedelta) -> None:
        """Say that the consumer waits for messages now."""
        self.rests_until = time.monotonic() + longest.total_seconds()

    @property
    def is_open(self) -> bool:
        """Whether nothing is held back anywhere."""
        self.passed = time.monotonic()
        return self._gate.is_open

    def opens_within(self, longest: timedelta) -> timedelta:
        """Return how long to wait until something held back by time may be free, at most `longest`."""
        return self._gate.opens_within(longest)

    async def admit(self, place: Place, wanted: int) -> int:
        """Return how many messages may be pulled from a place now."""
        self.passed = time.monotonic()
        return await self._gate.admit(place, wanted)

    def is_probing(self, place: Place) -> bool:
        """Say whether what is pulled now tries whether the downstream is back."""
        return self._gate.is_probing(place)

    async def tokens(self, place: Place, wanted: int) -> int:
        """Return how many messages the declared rate of a place lets begin now."""
        return await self._gate.tokens(place, wanted)

    async def begun(self, place: Place, count: int) -> None:
        """Count what was pulled, also when nothing came."""
        await self._gate.begun(place, count)
