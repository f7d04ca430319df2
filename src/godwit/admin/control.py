"""Pausing, draining, resuming and purging queues, for all processes at once.

Keys of the shared values: `gate/pause/<queue>` and `gate/pause/<queue>#<group>` (workers pull nothing), `drain/<queue>`
(producers publish nothing). The value is a `Hold` in JSON. Workers and producers look once a second; the broker itself
refuses nothing, so a program that publishes without a producer of ours is not held back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from godwit.brokers.contract import Broker, Shared
from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms, milliseconds
from godwit.core.errors import GroupNotFound, QueueDraining, QueueNotFound
from godwit.core.names import GroupName, QueueName
from godwit.telemetry.window import MONOTONIC_CLOCK

GATE_PREFIX: Final = "gate/"
"""Before all keys that workers look at every second: pauses and circuit breakers, with one question."""
PAUSE_PREFIX: Final = f"{GATE_PREFIX}pause/"
DRAIN_PREFIX: Final = "drain/"
LOOK_EVERY: Final = 0.25

ACTIVE: Final = "active"
PAUSED: Final = "paused"
DRAINING: Final = "draining"


def pause_key(queue: str, group: str | None = None) -> str:
    """Return the shared key whose presence pauses a queue or one group of it."""
    return f"{PAUSE_PREFIX}{queue}" if group is None else f"{PAUSE_PREFIX}{queue}#{group}"


def drain_key(queue: str) -> str:
    """Return the shared key whose presence keeps producers from publishing to a queue."""
    return f"{DRAIN_PREFIX}{queue}"


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who holds a queue back, since when and why."""

    by: str
    since: datetime
    reason: str | None = None


class Holds(msgspec.Struct, frozen=True):
    """Everything that is held back at one moment, by key."""

    found: Mapping[str, Hold]

    def paused(self, queue: str, group: str | None = None) -> Hold | None:
        """Return what pauses a queue as a whole, or one of its groups in either way."""
        own = self.found.get(pause_key(queue, group)) if group is not None else None
        return own or self.found.get(pause_key(queue))

    def draining(self, queue: str) -> Hold | None:
        """Return what keeps messages out of a queue."""
        return self.found.get(drain_key(queue))

    def state(self, queue: str, group: str) -> str:
        """Return how a group does: active, paused, draining, or both of these."""
        words = [PAUSED] if self.paused(queue, group) else []
        words += [DRAINING] if self.draining(queue) else []
        return ", ".join(words) or ACTIVE


async def holds(shared: Shared) -> Holds:
    """Return everything that is held back now."""
    entries = {**await shared.scan(PAUSE_PREFIX), **await shared.scan(DRAIN_PREFIX)}
    return Holds({key: _read(entry.value) for key, entry in entries.items()})


def _read(value: bytes) -> Hold:
    try:
        return msgspec.json.decode(value, type=Hold)
    except msgspec.DecodeError:  # set by hand or by another version: its presence is what counts
        return Hold(by="unknown", since=from_ms(0))


async def draining_queues(shared: Shared) -> frozenset[QueueName]:
    """Return the queues that take no messages."""
    return frozenset(QueueName(key.removeprefix(DRAIN_PREFIX)) for key in await shared.scan(DRAIN_PREFIX))


async def check_not_draining(shared: Shared, queue: QueueName) -> None:
    """Refuse to publish to a queue that is being drained."""
    if await shared.get(drain_key(queue)) is not None:
        raise QueueDraining(queue)


class QueueControl:
    """Holds queues back and lets them go; every call checks that the queue and the group exist."""

    def __init__(
        self,
        broker: Broker,
        *,
        by: str = "godwit",
        clock: Clock = SYSTEM_CLOCK,
        timer: Clock = MONOTONIC_CLOCK,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._broker, self._by, self._clock = broker, by, clock
        self._timer, self._sleep = timer, sleep

    async def pause(self, queue: str, group: str | None = None, *, reason: str | None = None) -> bool:
        """Let nobody pull from a queue, or for one group; False when it was paused before.

        What is being handled is finished. Workers obey within two seconds.
        """
        await self._check(queue, group)
        return await self._hold(pause_key(queue, group), reason)

    async def drain(self, queue: str, *, reason: str | None = None) -> bool:
        """Let nobody publish to a queue, so that its consumers empty it; False when it was draining before."""
        await self._check(queue, None)
        return await self._hold(drain_key(queue), reason)

    async def resume(self, queue: str, group: str | None = None) -> bool:
        """Lift the pause of a group, or the pause and the drain of a queue; False when there was nothing to lift.

        A group that was paused by itself stays so until it is resumed by itself.
        """
        keys = [pause_key(queue, group)] if group is not None else [pause_key(queue), drain_key(queue)]
        held = [key for key in keys if await self._broker.shared.get(key) is not None]
        if not held:
            await self._check(queue, group)  # a mistyped name shall not look like success
        for key in held:
            await self._broker.shared.delete(key)
        return bool(held)

    async def holds(self) -> Holds:
        """Return everything that is held back now."""
        return await holds(self._broker.shared)

    async def left(self, queue: str) -> int:
        """Return how many messages a queue still holds, over all groups."""
        groups = {one.name: one.groups for one in await self._broker.stats()}
        if queue not in groups:
            raise QueueNotFound(queue, tuple(groups))
        return sum(group.depth for group in groups[QueueName(queue)])

    async def wait_until_empty(self, queue: str, *, patience: timedelta) -> int:
        """Return 0 as soon as a queue holds nothing, or what it holds when the patience is over."""
        until_ms = self._timer.now_ms() + milliseconds(patience)
        while (left := await self.left(queue)) and self._timer.now_ms() < until_ms:
            await self._sleep(LOOK_EVERY)
        return left

    async def purge(self, queue: str, group: str | None = None) -> int:
        """Delete everything that waits; what is leased or dead stays. Return how many copies."""
        await self._check(queue, group)
        return await self._broker.purge(QueueName(queue), GroupName(group) if group is not None else None)

    async def _hold(self, key: str, reason: str | None) -> bool:
        hold = Hold(by=self._by, since=from_ms(self._clock.now_ms()), reason=reason)
        return await self._broker.shared.put(key, msgspec.json.encode(hold), expected=None) is not None

    async def _check(self, queue: str, group: str | None) -> None:
        groups = {one.name: tuple(part.name for part in one.groups) for one in await self._broker.stats()}
        if queue not in groups:
            raise QueueNotFound(queue, tuple(groups))
        if group is not None and group not in groups[QueueName(queue)]:
            raise GroupNotFound(queue, group, groups[QueueName(queue)])
