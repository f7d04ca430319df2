"""The lists of queues: those that are declared, and removed ones whose journals still have rows.

A removed queue is set aside by `maintain` and looked at once an hour until its journal has no row left; then only its
counters stay, so that numbers go on should it be declared again. Each declaration gives the queue a place in the list
that no other ever had: who sets it aside takes out the place that was read before, never a newer one.

In a cluster the lists are on one master. While it is away, what was read last counts: the other queues go on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from godwit.brokers.redis.client.script_runner import ScriptRunner
from godwit.brokers.redis.layout import keys
from godwit.core.clock import SYSTEM_CLOCK, milliseconds
from godwit.core.errors import BrokerUnavailable
from godwit.core.names import QueueName

LOOK_EVERY: Final = timedelta(hours=1)
AWAY_SECONDS: Final = 10.0
"""How long it is not tried again to read a list whose server is away."""
AT_ONCE: Final = 100
"""How many removed queues are looked at in one round."""


class QueueList:
    """The names of all queues of a server that have something stored."""

    def __init__(self, reach: ScriptRunner) -> None:
        self._reach = reach
        self._read_before: dict[str, list[Any]] = {}
        self._away_until = 0.0

    async def _read(self, key: str, *options: str) -> list[Any]:
        """Read a whole list, or give it as it was while its server is away."""
        before = self._read_before.get(key)
        if before is not None and time.monotonic() < self._away_until:
            return before
        try:
            (found,) = await self._reach.ask(("ZRANGE", key, 0, -1, *options))
        except BrokerUnavailable:
            if before is None:
                raise
            self._away_until = time.monotonic() + AWAY_SECONDS
            return before
        self._read_before[key] = found
        return list(found)

    def _now_ms(self) -> int:
        return int(self._reach.now() or SYSTEM_CLOCK.now_ms())

    async def declared(self) -> dict[QueueName, int]:
        """Return the names of queues in the order of their creation, and their places; some may be removed."""
        return _pairs(await self._read(keys.QUEUES, "WITHSCORES"))

    async def removed(self) -> list[QueueName]:
        """Return the removed queues whose journals may have rows."""
        return [QueueName(name.decode()) for name in await self._read(keys.REMOVED)]

    async def add(self, name: QueueName) -> None:
        """Give a queue a new place in the list."""
        (place,) = await self._reach.ask(("INCR", keys.CREATED))
        await self._reach.ask(("ZADD", keys.QUEUES, place, name))

    async def has(self, name: QueueName) -> bool:
        """Say whether a queue is listed."""
        (place,) = await self._reach.ask(("ZSCORE", keys.QUEUES, name))
        return place is not None

    async def set_aside(self, places: Mapping[QueueName, int]) -> None:
        """Move removed queues to the list of those, unless they have another place by now."""
        if not places:
            return
        now = self._now_ms()
        await self._reach.ask(*(("ZADD", keys.REMOVED, "NX", now, name) for name in places))
        await self._reach.ask(*(("ZREMRANGEBYSCORE", keys.QUEUES, place, place) for place in places.values()))

    async def due(self) -> dict[QueueName, int]:
        """Return the removed queues to look at now, and since when."""
        words = ("ZRANGEBYSCORE", keys.REMOVED, "-inf", self._now_ms(), "WITHSCORES", "LIMIT", 0, AT_ONCE)
        return _pairs((await self._reach.ask(words))[0])

    async def look_later(self, name: QueueName) -> None:
        """Let a removed queue be looked at in an hour."""
        await self._reach.ask(("ZADD", keys.REMOVED, "XX", self._now_ms() + milliseconds(LOOK_EVERY), name))

    async def forget(self, name: QueueName) -> None:
        """Take a removed queue off."""
        await self._reach.ask(("ZREM", keys.REMOVED, name))


def _pairs(found: list[Any]) -> dict[QueueName, int]:
    return {QueueName(found[n].decode()): int(float(found[n + 1])) for n in range(0, len(found), 2)}
