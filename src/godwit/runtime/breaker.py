"""A circuit breaker shared through the broker: an open one stops pulling, it burns no attempts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeVar

import msgspec

from godwit.brokers.contract import Shared, SharedEntry
from godwit.core.clock import Clock
from godwit.core.errors import CircuitOpen
from godwit.core.failures.breaker import CLOSED, BreakerRule, BreakerState, CallWindow, Circuit, opened, probing
from godwit.core.failures.failure import Away
from godwit.core.logs import get_logger
from godwit.core.shared_keys import breaker_key

KEPT_FOR: Final = timedelta(hours=1)
"""How long an open breaker outlives its time when no worker is there to try again."""
T = TypeVar("T")

log = get_logger(__name__)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(BreakerState)


class QueueCircuitBreaker:
    """A breaker as one process sees it: a copy of the shared state, and the calls counted here.

    Calls are counted per process, and what follows from them holds here at once; `share` tells the others, so one
    process that sees the outage stops all. Without `shared` the breaker is this process's own: the one around
    publishing, which must work without a broker.
    """

    def __init__(self, shared: Shared | None, name: str, *, owner: str, rule: BreakerRule, clock: Clock) -> None:
        self.name = name
        self.state = CLOSED
        self._shared = shared
        self._key = breaker_key(name)
        self._owner = owner
        self._rule = rule
        self._clock = clock
        self._version: int | None = None
        self._calls = CallWindow(rule)
        self._probes = 0
        self._unshared = False
        """Whether the state is news to the other processes."""

    @property
    def open_until_ms(self) -> int | None:
        """When it may be tried again, or None while it is closed."""
        return None if self.state.circuit is Circuit.CLOSED else self.state.until_ms

    @property
    def is_closed(self) -> bool:
        """Whether nothing is held back."""
        return self.state.circuit is Circuit.CLOSED

    @property
    def is_probing(self) -> bool:
        """Whether this process tries whether the downstream is back."""
        return self.state.circuit is Circuit.HALF_OPEN and self.state.prober == self._owner

    @property
    def is_watching(self) -> bool:
        """Whether there is anything to count or to share: something failed lately, or it is not closed."""
        return bool(self._calls) or not self.is_closed or self._unshared

    async def refresh(self) -> None:
        """Learn what other processes decided."""
        if self._shared is not None:
            self.learn(await self._shared.get(self._key))

    def learn(self, entry: SharedEntry | None) -> None:
        """Take over what is shared now."""
        self._version = entry.version if entry is not None else None
        if self._unshared:
            return
        before = self.state
        try:
            self.state = _decoder.decode(entry.value) if entry is not None else CLOSED
        except (msgspec.DecodeError, UnicodeDecodeError):  # written by hand, or by another version
            self.state = CLOSED
        if before.circuit is not self.state.circuit:
            self._start_over()

    async def admit(self) -> int | None:
        """Return how much may be begun now: None for any amount, 0 for nothing, else the probes left."""
        if self.is_closed:
            return None
        now_ms = self._clock.now_ms()
        if self.is_probing and now_ms < self.state.until_ms:
            return max(0, self._rule.half_open_probes - self._probes)
        if not self.state.may_probe(now_ms):
            return 0
        self.state, before = probing(self._rule, self._owner, now_ms, self.state.why), self.state
        self._start_over()
        if await self._written():
            return self._rule.half_open_probes
        self.state = before
        await self.refresh()
        return 0

    def begun(self, count: int) -> None:
        """Count what was begun as a probe."""
        if self.is_probing:
            self._probes += count

    def counts(self, away: Away | None) -> bool:
        """Say whether an error counts for this breaker."""
        return away in self._rule.counts

    def judged(self, away: Away | None) -> timedelta | None:
        """Count a call that failed; return how long its message waits that was tried while the breaker was not closed.

        None when the message is to blame, or may be: it was tried before an outage was known.
        """
        excused = not self.is_closed and self.counts(away)
        self.failed(away)
        return self._rule.reset_timeout if excused else None

    def worked(self, count: int = 1) -> None:
        """Count calls that worked; a probe that did closes the breaker."""
        if self.is_closed:
            self._calls.worked(count, self._clock.now_ms())
        elif self.is_probing:
            self._turn(CLOSED)

    def failed(self, away: Away | None = Away.AWAY) -> None:
        """Count a call that failed; one that says nothing about the downstream lets another message probe."""
        now_ms = self._clock.now_ms()
        if away is None or not self.counts(away):
            self._probes = max(0, self._probes - 1)
        elif self.is_probing:
            self._turn(opened(self._rule, now_ms, self.state.why))
        elif self.is_closed:
            self._calls.failed(away, now_ms)
            why = self._calls.reason_to_open(now_ms)
            if why is not None:
                self._turn(opened(self._rule, now_ms, why))

    def _turn(self, state: BreakerState) -> None:
        self.state = state
        self._start_over()
        self._unshared = self._shared is not None
        log.warning("circuit breaker changed", breaker=self.name, state=state.text(self.name))

    def _start_over(self) -> None:
        self._calls.clear()
        self._probes = 0

    async def share(self) -> None:
        """Tell the other processes what was decided here; if they decided meanwhile, theirs holds."""
        if not self._unshared:
            return
        self._unshared = False  # what is decided while this is written is news again
        try:
            if not await self._written():
                await self.refresh()
        except BaseException:
            self._unshared = True
            raise

    async def execute(self, operation: Callable[[], Awaitable[T]], *, failure: type[Exception] = Exception) -> T:
        """Run an operation under the breaker; raises `CircuitOpen` while it is open.

        Only errors of the type `failure` count: a refused message says nothing about the broker's health.
        """
        if not self.is_closed and await self.admit() == 0:
            raise CircuitOpen(self.name, max(0, self.state.until_ms - self._clock.now_ms()) / 1000)
        self.begun(1)
        try:
            result = await operation()
        except failure:
            self.failed()
            await self.share()
            raise
        except BaseException:
            self.failed(None)
            raise
        if self.is_watching:
            self.worked()
            await self.share()
        return result

    async def _written(self) -> bool:
        """Write the state; say whether no other process was faster."""
        if self._shared is None:
            return True
        state = self.state
        ttl = None if state.circuit is Circuit.CLOSED else self._rule.reset_timeout + KEPT_FOR
        version = await self._shared.put(self._key, _encoder.encode(state), expected=self._version, ttl=ttl)
        self._version = self._version if version is None else version
        return version is not None
