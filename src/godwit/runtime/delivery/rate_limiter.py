"""A rate that all workers of a group keep together: tokens, taken in blocks from a value that the broker shares."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Final

import msgspec

from godwit.admin.control import read_tokens
from godwit.brokers.contract import Place, Shared, SharedEntry
from godwit.core.clock import Clock
from godwit.core.errors import InvalidSetting
from godwit.core.rate import CellRate, Rate, TokenState
from godwit.core.shared_keys import tokens_key
from godwit.runtime.worker.consumer import Consumer

KEPT_FOR: Final = timedelta(hours=1)
BLOCK_MS: Final = 100
"""A block is what flows in this time, or what one pull wants if that is more."""
TRIES: Final = 5
"""How often tokens are asked for again because another process took some at the same moment."""
JITTER_MS: Final = 100
"""Workers that wait for the next token ask for it at different moments, at most so far apart."""


class RateLimiter:
    """A rate as one process keeps it: what is left of its block, and when it may ask for the next one.

    A process that dies takes the rest of one block with it. Tokens for which no message came go back, so that a process
    without work keeps none from the others.
    """

    def __init__(
        self, shared: Shared, rate: Rate, *, name: str, places: Sequence[Place], clock: Clock, random: Random
    ) -> None:
        self._shared, self._clock, self._random = shared, clock, random
        self._key = tokens_key(name)
        self._cells = CellRate(rate)
        self._block = max(1, int(BLOCK_MS / self._cells.interval_ms))
        self._state = TokenState(
            spoken_ms=0, rate=rate.rate, places=tuple(f"{queue}#{group}" for queue, group in places)
        )
        self._left, self._use_until_ms, self._ask_at_ms = 0, 0.0, 0.0

    @property
    def empty_until_ms(self) -> int | None:
        """When the next token may be there; None while there may be one."""
        return int(self._ask_at_ms) + 1 if self._ask_at_ms > self._clock.now_ms() else None

    async def take(self, wanted: int) -> int:
        """Return how many messages may be pulled now, from the block at hand or from a new one."""
        now_ms = self._clock.now_ms()
        if now_ms > self._use_until_ms:
            self._left = 0
        if not self._left and now_ms >= self._ask_at_ms:
            self._left = await self._new_block(max(wanted, self._block))
            self._use_until_ms = now_ms + self._cells.block_ms
        return min(wanted, self._left)

    async def begun(self, count: int) -> None:
        """Count messages that came; when none did, the tokens go back."""
        self._left = max(0, self._left - count)
        if not count and self._left:
            tokens, self._left = self._left, 0
            entry = await self._shared.get(self._key)
            if entry is not None and (state := read_tokens(entry.value)) is not None:
                await self._write(entry, state.spoken_ms - tokens * self._cells.interval_ms)

    async def _new_block(self, wanted: int) -> int:
        for _ in range(TRIES):
            entry = await self._shared.get(self._key)
            state = (read_tokens(entry.value) if entry is not None else None) or self._state
            now_ms = self._clock.now_ms()
            tokens, spoken_ms = self._cells.take(state.spoken_ms, now_ms, wanted)
            if not tokens:
                self._ask_later(self._cells.next_ms(state.spoken_ms, now_ms))
                return 0
            if await self._write(entry, spoken_ms):
                return tokens
        self._ask_later(self._clock.now_ms())
        return 0

    def _ask_later(self, at_ms: float) -> None:
        share = 1 if self._cells.at_once > 1 else 0.05  # a token that is not asked for in time is lost then
        self._ask_at_ms = at_ms + self._random.random() * min(JITTER_MS, share * self._cells.interval_ms)

    async def _write(self, entry: SharedEntry | None, spoken_ms: float) -> bool:
        value = msgspec.json.encode(msgspec.structs.replace(self._state, spoken_ms=spoken_ms))
        expected = entry.version if entry is not None else None
        return await self._shared.put(self._key, value, expected=expected, ttl=KEPT_FOR) is not None


def limiters_of(
    consumers: Sequence[Consumer], shared: Shared, *, clock: Clock, random: Random
) -> dict[Place, RateLimiter]:
    """Return the limiters of a worker's places; consumers that name the same rate share one."""
    rates: dict[str, Rate] = {}
    places: dict[str, list[Place]] = {}
    for consumer in consumers:
        if consumer.rate is None:
            continue
        if rates.setdefault(consumer.rate_name, consumer.rate) != consumer.rate:
            raise InvalidSetting("rate", consumer.rate.rate, f"the same rate wherever {consumer.rate_name!r} is kept")
        places.setdefault(consumer.rate_name, []).extend((queue, consumer.group) for queue in consumer.queues)
    limiters = {
        name: RateLimiter(shared, rate, name=name, places=sorted(set(places[name])), clock=clock, random=random)
        for name, rate in rates.items()
    }
    return {place: limiters[name] for name, found in places.items() for place in found}
