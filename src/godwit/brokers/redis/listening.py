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

from godwit.brokers.contract import Place
from godwit.brokers.listener import LoopListener
from godwit.brokers.redis import keys
from godwit.brokers.redis.hearing import Ear, Markers
from godwit.brokers.redis.replies import Refused
from godwit.brokers.redis.server import Servers
from godwit.core.errors import GodwitError
from godwit.core.names import QueueName

LOOK_SECONDS: Final = 1.0
"""How often a place where somebody waits is looked at in any case."""


class RedisListener(LoopListener):
    """A listener that passes on what it was woken for when its waiting is cancelled."""

    _listeners: Listeners

    async def wait(self, timeout: timedelta) -> bool:  # noqa: ASYNC109
        """Return True when something may have become ready since `clear`, False once `timeout` has passed."""
        seconds = timeout.total_seconds()
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
            if self._woken:
                self._listeners.pass_on(self.places)
            raise
        finally:
            timer.cancel()
            self._waiter = None
        return self._woken


class Spot:
    """Those who listen at one place, and the timer for what is due there."""

    __slots__ = ("due", "listeners", "timer")

    def __init__(self) -> None:
        self.listeners: dict[LoopListener, None] = {}
        self.due: float | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def waited_for(self) -> bool:
        """Whether anybody waits here now."""
        return any(listener.waits for listener in self.listeners)

    def wake_one(self) -> bool:
        """Wake who has waited longest; say whether there was anybody."""
        for listener in list(self.listeners):
            if listener.waits:
                # To the end of the line: the next message is for somebody else.
                del self.listeners[listener]
                self.listeners[listener] = None
                listener.wake()
                return True
        return False

    def disarm(self) -> None:
        """Stop the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Listeners:
    """Who listens where, in one broker."""

    def __init__(self, servers: Servers, partitions: Callable[[QueueName], int]) -> None:
        self._servers, self._partitions = servers, partitions
        self._loop = asyncio.get_running_loop()
        self._spots: dict[Place, Spot] = {}
        self._ears: dict[str, Ear] = {}
        """By what the keys they wait for have in common: nothing on one server, a slot in a cluster."""
        self._errands: set[asyncio.Task[Any]] = set()
        self._closed = False

    def listen(self, places: Sequence[Place]) -> RedisListener:
        """Return a listener for several places."""
        listener = RedisListener(self, places)
        for place in listener.places:
            self._spots.setdefault(place, Spot()).listeners[listener] = None
        return listener

    def forget(self, listener: LoopListener) -> None:
        """Take a listener off."""
        for place in listener.places:
            spot = self._spots.get(place)
            if spot is not None:
                spot.listeners.pop(listener, None)
                if not spot.listeners:
                    spot.disarm()
                    del self._spots[place]

    def look(self, places: Sequence[Place]) -> None:
        """Hear markers and times of these places: somebody waits there now."""
        if self._closed:
            self._loop.call_soon(self._wake_all)
            return
        for place in places:
            self._arm(place, self._spots[place])
            for key in self._wake_keys(place):
                self._ear(key).look(key)

    def _wake_keys(self, place: Place) -> list[str]:
        return [keys.wake(*place, partition) for partition in range(self._partitions(place[0]))]

    def _ear(self, key: str) -> Ear:
        """Return whoever hears the markers of a key."""
        channel = self._servers.topology.channel_of(key)
        ear = self._ears.get(channel)
        if ear is None or ear.task.done():
            ear = self._ears[channel] = Ear(
                self._servers,
                key,
                wanted=lambda: self._wanted(channel),
                heard=self._heard,
                missed=self._wake_all,
                send=self._send,
            )
        return ear

    def _wanted(self, channel: str) -> Markers:
        """Return the markers of a channel that somebody waits for."""
        return {
            key: place
            for place, spot in self._spots.items()
            if spot.waited_for
            for key in self._wake_keys(place)
            if self._servers.topology.channel_of(key) == channel
        }

    def _heard(self, place: Place, key: str) -> None:
        """Wake somebody; when nobody waits here any more the marker is for another process."""
        spot = self._spots.get(place)
        if spot is None or not spot.wake_one():
            self._send(("ZADD", key, 0, "w"))

    def pass_on(self, places: Iterable[Place]) -> None:
        """Let another one, here or elsewhere, fetch what somebody was woken for."""
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

    def _arm(self, place: Place, spot: Spot) -> None:
        """Set the timer of a place to what is due, or to the next look in any case."""
        when = self._loop.time() + LOOK_SECONDS
        if spot.due is not None:
            when = min(when, spot.due)
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
        task = self._loop.create_task(self._errand(*commands))
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
        tasks = [*(ear.task for ear in self._ears.values()), *self._errands]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
