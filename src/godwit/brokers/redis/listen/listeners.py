"""Waiting for something to pull: who waits where, and what wakes them.

Scripts that make something ready add a marker to the group's wake key. The process that takes it off (BZPOPMIN) wakes
one of its own; a pull that leaves messages behind adds the marker again. What becomes due by time has a timer here, and
a marker lost with a connection costs `LOOK_SECONDS` at most.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

from godwit.brokers.arguments import lease_ms
from godwit.brokers.contract import Place
from godwit.brokers.listener import LoopListener
from godwit.brokers.redis.client.client import RedisClient
from godwit.brokers.redis.client.connection import ServerInfo
from godwit.brokers.redis.client.errors import Refused
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.listen.prefetch import ParkedPull, PrefetchedPulls
from godwit.brokers.redis.listen.wake_subscriber import Markers, WakeSubscriber
from godwit.brokers.redis.pull import PullOrder
from godwit.core.background import Background
from godwit.core.errors import GodwitError
from godwit.core.names import QueueName

CALL_BACK_SECONDS: Final = 1.0
"""How long closing waits for pulls that wait on the server."""
LOOK_SECONDS: Final = 1.0
"""How often a place where a pull waits is looked at in any case."""
SOON_SECONDS: Final = 0.25
"""What is due sooner than this is waited for without a look between."""


class RedisListener(LoopListener):
    """A listener that passes on what it was woken for when its waiting is cancelled."""

    _listeners: RedisListeners

    def __init__(self, listeners: RedisListeners, places: Sequence[Place]) -> None:
        super().__init__(listeners, places)
        self.expected: PullOrder | None = None
        """What will be pulled, when it listens at one place only."""

    def clear(self) -> None:
        """Forget earlier wake-ups; call it before pulling."""
        self._woken, self.expected = False, None

    def expect(self, *, worker: str, limit: int, lease: timedelta, max_bytes: int | None = None) -> None:
        """Let a pull wait on the server."""
        if len(self.places) == 1 and limit > 0:
            self.expected = PullOrder(*self.places[0], worker, lease_ms(lease), max_bytes or 0)

    async def wait(self, timeout: timedelta) -> bool:  # noqa: ASYNC109
        """Return True when something may have become ready since `clear`, False once `timeout` has passed."""
        seconds = timeout.total_seconds()
        if self.expected is not None and self._listeners.has(self.expected):
            self._woken = True  # a pull brought it while no other waited
        if self._woken or seconds <= 0:
            await asyncio.sleep(0)
            return self._woken
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self._time_ran_out)
        try:
            self._listeners.look(self.places)
            await self._waiter
        except asyncio.CancelledError:
            self._listeners.unpark(self)
            if self._woken:
                self._listeners.pass_on(self.places)
            raise
        finally:
            timer.cancel()
            self._waiter = None
        return self._woken

    def close(self) -> None:
        """Listen no more; what was fetched ahead is for others."""
        super().close()
        self._listeners.unpark(self)
        if self.expected is not None:
            self._listeners.give_up(self.expected)


class WaitPlace:
    """Those who listen at one place, and the timer for what is due there."""

    __slots__ = ("due", "listeners", "timer")

    def __init__(self) -> None:
        self.listeners: dict[RedisListener, None] = {}
        self.due: float | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def waited_for(self) -> bool:
        """Whether a pull waits here now."""
        return any(listener.waits for listener in self.listeners)

    def wake_one(self) -> bool:
        """Wake the listener that has waited longest; say whether there was one."""
        for listener in self.listeners:
            if listener.waits:
                self.wake(listener)
                return True
        return False

    def wake(self, listener: RedisListener) -> None:
        """Wake the longest-waiting listener and move it to the back of the line."""
        del self.listeners[listener]
        self.listeners[listener] = None
        listener.wake()

    def disarm(self) -> None:
        """Stop the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class RedisListeners:
    """Who listens where, in one broker."""

    def __init__(self, servers: RedisClient, partitions: Callable[[QueueName], int], fetcher: PrefetchedPulls) -> None:
        self._servers, self._partitions, self._fetcher = servers, partitions, fetcher
        self.has, self.give_up = fetcher.has, fetcher.give_up
        self._loop = asyncio.get_running_loop()
        self._spots: dict[Place, WaitPlace] = {}
        self._ears: dict[str, WakeSubscriber] = {}
        """By what the keys they wait for have in common: nothing on one server, a slot in a cluster."""
        self._background = Background("redis")
        self._errands: set[asyncio.Task[Any]] = set()
        self._closed = False

    def listen(self, places: Sequence[Place]) -> RedisListener:
        """Return a listener for several places."""
        listener = RedisListener(self, places)
        for place in listener.places:
            self._spots.setdefault(place, WaitPlace()).listeners[listener] = None
        return listener

    def forget(self, listener: LoopListener) -> None:
        """Take a listener off."""
        for place in listener.places:
            spot = self._spots.get(place)
            if spot is not None:
                spot.listeners.pop(listener, None)  # type: ignore[call-overload]  # we made it
                if not spot.listeners:
                    spot.disarm()
                    del self._spots[place]

    def look(self, places: Sequence[Place]) -> None:
        """Subscribe to markers and times of these places: a pull waits there now."""
        if self._closed:
            self._loop.call_soon(self._wake_all)
            return
        for place in places:
            self._arm(place, self._spots[place])
            for key in self._wake_keys(place):
                self._ear(key).look(key)

    def _wake_keys(self, place: Place) -> list[str]:
        return [keys.wake(*place, partition) for partition in range(self._partitions(place[0]))]

    def _ear(self, key: str) -> WakeSubscriber:
        """Return the subscriber of a key's markers."""
        channel = self._servers.topology.channel_of(key)
        ear = self._ears.get(channel)
        if ear is None or ear.task.done():
            ear = self._ears[channel] = WakeSubscriber(
                self._servers,
                key,
                wanted=lambda: self._wanted(channel),
                heard=self._heard,
                missed=self._wake_all,
                send=self._send,
                park=self._park,
                answered=self._answered,
                lost=self._fetcher.lost,
            )
        return ear

    # Pulls that wait on the server

    def _park(self, markers: Markers, server: ServerInfo) -> ParkedPull | None:
        """Return the pull of the listener that is woken next, when its place is certain."""
        place = next(iter(markers.values()))
        if len(markers) != 1 or self._partitions(place[0]) != 1:
            return None
        for listener in self._spots[place].listeners:
            if listener.waits:
                return self._fetcher.park(listener, listener.expected, server) if listener.expected else None
        return None

    def _answered(self, parked: ParkedPull, marked: Place | None, reply: Any) -> None:
        """Take what a pull found; when it did not look, the marker wakes the next listener."""
        place = (parked.order.queue, parked.order.group)
        pulled = self._fetcher.read(parked, reply)
        if pulled is not None:
            spot = self._spots.get(place)
            if spot is None or parked.listener not in spot.listeners:
                self._fetcher.hand_back(pulled.deliveries)
            else:
                self._fetcher.keep(parked.order, pulled.deliveries)
                spot.wake(parked.listener)
        elif marked is not None:
            self._heard(marked, keys.wake(*marked))

    def unpark(self, listener: RedisListener) -> None:
        """Call back the pull of a listener who does not wait any more."""
        for ear in self._ears.values():
            if ear.parked is not None and ear.parked.listener is listener:
                ear.unpark()

    def _wanted(self, channel: str) -> Markers:
        """Return the markers of a channel that a pull waits for."""
        return {
            key: place
            for place, spot in self._spots.items()
            if spot.waited_for
            for key in self._wake_keys(place)
            if self._servers.topology.channel_of(key) == channel
        }

    def _heard(self, place: Place, key: str) -> None:
        """Wake a listener; when none waits here any more the marker is for another process."""
        spot = self._spots.get(place)
        if spot is None or not spot.wake_one():
            self._send(("ZADD", key, 0, "w"))

    def pass_on(self, places: Iterable[Place]) -> None:
        """Let another listener, here or elsewhere, fetch what a cancelled one was woken for."""
        for place in places:
            spot = self._spots.get(place)
            if (spot is None or not spot.wake_one()) and not self._closed:
                self._send(*(("ZADD", key, 0, "w") for key in self._wake_keys(place)))

    def due(self, place: Place, milliseconds: int) -> None:
        """Take from a pull's answer when something becomes due there."""
        spot = self._spots.get(place)
        if spot is not None:
            spot.due = self._loop.time() + max(milliseconds, 1) / 1000 if milliseconds >= 0 else None
            if spot.timer is not None:
                self._arm(place, spot)

    def _arm(self, place: Place, spot: WaitPlace) -> None:
        """Set the timer of a place to what is due, or to the next look in any case."""
        now = self._loop.time()
        when = now + LOOK_SECONDS
        if spot.due is not None and spot.due < when:
            left = spot.due - now
            # A lease for whose whole length no call looked counts as an outage, which moves it by its length, again and
            # again: a look between keeps one that is shorter than LOOK_SECONDS from it.
            when = now + left / 2 if left > SOON_SECONDS else spot.due
        if spot.timer is not None:
            if spot.timer.when() <= when:
                return
            spot.timer.cancel()
        spot.timer = self._loop.call_at(when, self._time_is_up, place)

    def _time_is_up(self, place: Place) -> None:
        spot = self._spots.get(place)
        if spot is None:
            return
        spot.timer = spot.due = None
        if spot.wake_one() and spot.waited_for:
            self._arm(place, spot)

    # Errands

    def _send(self, *commands: tuple[str | int, ...]) -> None:
        task = self._background.once("redis errand", self._errand(*commands))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _errand(self, *commands: tuple[str | int, ...]) -> None:
        with contextlib.suppress(GodwitError, Refused):  # a marker lost is found by the next look
            await self._servers.ask(*commands)

    def _wake_all(self, markers: Markers | None = None) -> None:
        places = self._spots.keys() if markers is None else set(markers.values())
        for place in places:
            spot = self._spots.get(place)
            while spot is not None and spot.wake_one():
                pass

    async def close(self) -> None:
        """End all waiting."""
        self._closed = True
        for spot in self._spots.values():
            spot.disarm()
        self._wake_all()
        await self._call_back()
        tasks = [*(ear.task for ear in self._ears.values()), *self._errands]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _call_back(self) -> None:
        """Let no pull wait on the server for a broker that is closed; what came nevertheless is handed back."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CALL_BACK_SECONDS):
                for ear in self._ears.values():
                    await ear.called_back()
        self._fetcher.give_up_all()
