"""Pausing, draining, resuming and purging queues, for all processes at once.

Keys of the shared values: `gate/pause/<queue>` and `gate/pause/<queue>#<group>` (workers pull nothing), `drain/<queue>`
(producers publish nothing). The value is a `Hold` in JSON. Right after a change the journal of the queue gets a row of
it with who did it, which a crash in between leaves out. Workers and producers look once a second; the broker itself
refuses nothing, so a program that publishes without a producer of ours is not held back.

Workers hold themselves back by three more: `gate/rate/<queue>#<group>` (a `RateLimit`: a downstream takes nothing more
until a time), `gate/breaker/<downstream>` (a `BreakerState`), and `gate/tokens/<name>` (a `TokenState`: the rate that a
group declared).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec

from godwit.brokers.contract import Broker, Shared, SharedEntry
from godwit.core import shared_keys
from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms, milliseconds
from godwit.core.errors import GroupNotFound, QueueDraining, QueueNotFound
from godwit.core.failures.breaker import BreakerState, Circuit
from godwit.core.journal.vocabulary import Event
from godwit.core.limits import bounded_ms
from godwit.core.names import GroupName, QueueName
from godwit.core.rate import TokenState
from godwit.core.shared_keys import drain_key, pause_key, rate_key
from godwit.telemetry.window import MONOTONIC_CLOCK

LOOK_EVERY: Final = 0.25

ACTIVE: Final = "active"
PAUSED: Final = "paused"
DRAINING: Final = "draining"


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who holds a queue back, since when and why."""

    by: str
    since: datetime
    reason: str | None = None


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Until when a group waits because its downstream said so, and what it said."""

    until_ms: int
    reason: str = ""

    def text(self) -> str:
        """Return it for people: `rate limited until 12:03:20 (429 of the mail provider)`, in UTC."""
        until = f"rate limited until {from_ms(bounded_ms(self.until_ms)):%H:%M:%S}"
        return f"{until} ({self.reason})" if self.reason else until


class Holds(msgspec.Struct, frozen=True):
    """Everything that is held back at one moment, by key.

    What waits for a downstream or behind a breaker, and the declared rates, are known by queue and group.
    """

    found: Mapping[str, Hold]
    waiting: Mapping[tuple[str, str], str] = {}
    rates: Mapping[tuple[str, str], str] = {}

    def paused(self, queue: str, group: str | None = None) -> Hold | None:
        """Return what pauses a queue as a whole, or one of its groups in either way."""
        own = self.found.get(pause_key(queue, group)) if group is not None else None
        return own or self.found.get(pause_key(queue))

    def draining(self, queue: str) -> Hold | None:
        """Return what keeps messages out of a queue."""
        return self.found.get(drain_key(queue))

    def state(self, queue: str, group: str) -> str:
        """Return how a group does: active, paused, draining, rate limited, held back by a breaker, or several."""
        words = [PAUSED] if self.paused(queue, group) else []
        words += [DRAINING] if self.draining(queue) else []
        words += [self.waiting[queue, group]] if (queue, group) in self.waiting else []
        return ", ".join(words) or ACTIVE


async def holds(shared: Shared, clock: Clock = SYSTEM_CLOCK) -> Holds:
    """Return everything that is held back now."""
    gate = await shared.scan(shared_keys.GATE)
    entries = {key: entry for key, entry in gate.items() if key.startswith(shared_keys.PAUSE)}
    entries |= await shared.scan(shared_keys.DRAIN)
    waiting = await _behind_breakers(shared, gate)
    now_ms = clock.now_ms()
    for key, entry in gate.items():
        limit = read_rate_limit(entry.value) if key.startswith(shared_keys.RATE) else None
        if limit is not None and limit.until_ms > now_ms:
            queue, _, group = key.removeprefix(shared_keys.RATE).partition("#")
            waiting[queue, group] = "; ".join(filter(None, [waiting.get((queue, group)), limit.text()]))
    return Holds({key: read_hold(entry.value) for key, entry in entries.items()}, waiting, _declared_rates(gate))


def _declared_rates(gate: Mapping[str, SharedEntry]) -> dict[tuple[str, str], str]:
    """Return the rates that workers keep, as they were declared."""
    states = [read_tokens(entry.value) for key, entry in gate.items() if key.startswith(shared_keys.TOKENS)]
    return {
        (queue, group): state.rate
        for state in states
        if state is not None
        for queue, _, group in (place.partition("#") for place in state.places)
    }


async def _behind_breakers(shared: Shared, gate: Mapping[str, SharedEntry]) -> dict[tuple[str, str], str]:
    """Return what open breakers hold back: which group needs which downstream, its workers say in their heartbeats."""
    texts: dict[str, str] = {}
    for key, entry in gate.items():
        if key.startswith(shared_keys.BREAKER):
            name = key.removeprefix(shared_keys.BREAKER)
            with suppress(msgspec.DecodeError, UnicodeDecodeError):  # an unreadable entry holds nothing back
                state = msgspec.json.decode(entry.value, type=BreakerState)
                if state.circuit is not Circuit.CLOSED:
                    texts[name] = state.text(name)
    if not texts:
        return {}
    found = {}
    for entry in (await shared.scan(shared_keys.INSTANCE)).values():
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            served = msgspec.json.decode(entry.value, type=_Served)
            if served.breaker in texts:
                found[served.queue, served.group] = texts[served.breaker]
    return found


class _Served(msgspec.Struct, frozen=True):
    """As much of a heartbeat as is needed here."""

    queue: str
    group: str
    breaker: str = ""


def read_rate_limit(value: bytes) -> RateLimit | None:
    """Return a rate limit as it is shared; None for what is none."""
    try:
        return msgspec.json.decode(value, type=RateLimit)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_tokens(value: bytes) -> TokenState | None:
    """Return the state of a declared rate as it is shared; None for what is none."""
    try:
        return msgspec.json.decode(value, type=TokenState)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_hold(value: bytes) -> Hold:
    """Return who holds something back, as it is shared."""
    try:
        return msgspec.json.decode(value, type=Hold)
    except msgspec.DecodeError:  # set by hand or by another version: its presence is what counts
        return Hold(by="unknown", since=from_ms(0))


async def draining_queues(shared: Shared) -> frozenset[QueueName]:
    """Return the queues that take no messages."""
    return frozenset(QueueName(key.removeprefix(shared_keys.DRAIN)) for key in await shared.scan(shared_keys.DRAIN))


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
        """Stop pulls from a queue, or for one group; False when it was paused before.

        What is being handled is finished. Workers obey within two seconds.
        """
        await self._check(queue, group)
        return await self._hold(Event.PAUSED, queue, group, reason)

    async def drain(self, queue: str, *, reason: str | None = None) -> bool:
        """Refuse publishes to a queue, so that its consumers empty it; False when it was draining before."""
        await self._check(queue, None)
        return await self._hold(Event.DRAINING, queue, None, reason)

    async def resume(self, queue: str, group: str | None = None) -> bool:
        """Lift pause and rate limit of a group, or pause and drain of a queue; False when there was nothing to lift.

        A group that was paused by itself stays so until it is resumed by itself.
        """
        own = [] if group is None else [pause_key(queue, group), rate_key(queue, group)]
        keys = own or [pause_key(queue), drain_key(queue)]
        held = [key for key in keys if await self._broker.shared.get(key) is not None]
        if not held:
            await self._check(queue, group)  # a mistyped name shall not look like success
        for key in held:
            await self._broker.shared.delete(key)
        if held:
            with suppress(QueueNotFound, GroupNotFound):  # what outlived its queue is let go all the same
                await self._note(Event.RESUMED, queue, group, None)
        return bool(held)

    async def holds(self) -> Holds:
        """Return everything that is held back now."""
        return await holds(self._broker.shared, self._clock)

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
        return await self._broker.purge(
            QueueName(queue), GroupName(group) if group is not None else None, actor=self._by
        )

    async def _hold(self, event: Event, queue: str, group: str | None, reason: str | None) -> bool:
        """Hold something back, and then write that down in the journal."""
        key = drain_key(queue) if event is Event.DRAINING else pause_key(queue, group)
        hold = Hold(by=self._by, since=from_ms(self._clock.now_ms()), reason=reason)
        value = msgspec.json.encode(hold)
        if await self._broker.shared.put(key, value, expected=None) is None:
            return False
        await self._note(event, queue, group, value)
        return True

    async def _note(self, event: Event, queue: str, group: str | None, hold: bytes | None) -> None:
        place = QueueName(queue), GroupName(group) if group is not None else None
        await self._broker.note_hold(event, *place, hold=hold, actor=self._by)

    async def _check(self, queue: str, group: str | None) -> None:
        groups = {one.name: tuple(part.name for part in one.groups) for one in await self._broker.stats()}
        if queue not in groups:
            raise QueueNotFound(queue, tuple(groups))
        if group is not None and group not in groups[QueueName(queue)]:
            raise GroupNotFound(queue, group, groups[QueueName(queue)])
