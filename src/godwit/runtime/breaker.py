"""A circuit breaker shared through the broker: an open one stops pulling, it burns no attempts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from godwit.admin.control import GATE_PREFIX
from godwit.brokers.contract import Shared, SharedEntry
from godwit.core.breaker import CLOSED, BreakerRule, BreakerState, Circuit, opened, probing
from godwit.core.clock import Clock
from godwit.core.errors import CircuitOpen
from godwit.core.logs import get_logger

PREFIX: Final = f"{GATE_PREFIX}breaker/"
T = TypeVar("T")

log = get_logger(__name__)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(BreakerState)


class Breaker:
    """One breaker as one process sees it: a copy of the shared state, and the failures counted here.

    Failures in a row are counted per process; the state they lead to is shared, so one process that sees the outage
    stops all. Without `shared` it is this process's own: the one around publishing, which must work without a broker.
    """

    def __init__(self, shared: Shared | None, name: str, *, owner: str, rule: BreakerRule, clock: Clock) -> None:
        self.name = name
        self.state = CLOSED
        self._shared = shared
        self._key = f"{PREFIX}{name}"
        self._owner = owner
        self._rule = rule
        self._clock = clock
        self._version: int | None = None
        self._failures = 0
        self._probes = 0

    @property
    def open_until_ms(self) -> int | None:
        """When it may be tried again, or None while it is closed."""
        return None if self.state.circuit is Circuit.CLOSED else self.state.until_ms

    async def refresh(self) -> None:
        """Learn what other processes decided."""
        if self._shared is not None:
            self.learn(await self._shared.get(self._key))

    def learn(self, entry: SharedEntry | None) -> None:
        """Take over what is shared now."""
        self._version = entry.version if entry is not None else None
        self.state = _decoder.decode(entry.value) if entry is not None else CLOSED

    async def admit(self) -> int | None:
        """Return how much may be begun now: None for any amount, 0 for nothing, else the probes left."""
        if self.state.circuit is Circuit.CLOSED:
            return None
        now_ms = self._clock.now_ms()
        if self.state.prober == self._owner and now_ms < self.state.until_ms:
            return max(0, self._rule.half_open_probes - self._probes)
        if not self.state.may_probe(now_ms):
            return 0
        self._probes = 0
        won = await self._change(probing(self._rule, self._owner, now_ms))
        return self._rule.half_open_probes if won else 0

    def begun(self, count: int) -> None:
        """Count what was begun as a probe."""
        if self.state.circuit is Circuit.HALF_OPEN:
            self._probes += count

    async def succeeded(self) -> None:
        """Something worked: failures no longer follow one another, and a probe closes the breaker."""
        self._failures = 0
        if self.state.circuit is Circuit.HALF_OPEN and self.state.prober == self._owner:
            await self._change(CLOSED)

    async def failed(self) -> None:
        """Something failed: enough in a row, or a probe, open the breaker."""
        self._failures += 1
        probe = self.state.circuit is Circuit.HALF_OPEN and self.state.prober == self._owner
        if probe or (self.state.circuit is Circuit.CLOSED and self._failures >= self._rule.failure_threshold):
            self._failures = 0
            await self._change(opened(self._rule, self._clock.now_ms()))

    @property
    def is_closed(self) -> bool:
        """Whether nothing is held back."""
        return self.state.circuit is Circuit.CLOSED

    def worked(self) -> None:
        """Something that began while it was closed worked: failures no longer follow one another."""
        self._failures = 0

    async def execute(self, operation: Callable[[], Awaitable[T]], *, failure: type[Exception] = Exception) -> T:
        """Run an operation under the breaker; raises `CircuitOpen` while it is open.

        Only errors of the type `failure` count: a refused message says nothing about the broker's health.
        """
        if self.state.circuit is not Circuit.CLOSED and await self.admit() == 0:
            raise CircuitOpen(self.name, max(0, self.state.until_ms - self._clock.now_ms()) / 1000)
        self.begun(1)
        try:
            result = await operation()
        except failure:
            await self.failed()
            raise
        if self.is_closed:
            self.worked()
        else:
            await self.succeeded()
        return result

    async def _change(self, state: BreakerState) -> bool:
        """Write a new state if nobody was faster; otherwise take over theirs."""
        if self._shared is None:
            self.state = state
            return True
        version = await self._shared.put(self._key, _encoder.encode(state), expected=self._version)
        if version is None:
            await self.refresh()
            return False
        self._version, self.state = version, state
        log.warning("circuit breaker changed", breaker=self.name, state=state.circuit)
        return True
