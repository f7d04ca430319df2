"""Waiting for something to pull: one blocking connection per process, however many wait.

Scripts that make something ready add a marker to the group's wake key. The process that takes it off (BZPOPMIN) wakes
one of its own; a pull that leaves messages behind adds the marker again. What becomes due by time has a timer here, and
a marker lost with a connection costs `LOOK_SECONDS` at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

import hiredis

from godwit.brokers.contract import Place
from godwit.brokers.listener import LoopListener
from godwit.brokers.redis import keys
from godwit.brokers.redis.link import Link
from godwit.brokers.redis.replies import LinkLost, Refused
from godwit.brokers.redis.server import Servers
from godwit.core.errors import GodwitError

LOOK_SECONDS: Final = 1.0
"""How often a place where somebody waits is looked at in any case."""
_BLOCK_SECONDS: Final = 5
_PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class RedisListener(LoopListener):
    """A listener that passes on what it was woken for when its waiting is cancelled."""

    _listeners: Listeners

    async def wait(self, timeout: timedelta) -> None:  # noqa: ASYNC109
        """Return when something may have become ready since `clear`, at the latest after `timeout`."""
        seconds = timeout.total_seconds()
        if self._woken or seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self.wake)
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

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._loop = asyncio.get_running_loop()
        self._spots: dict[Place, Spot] = {}
        self._nudge = f"godwit:nudge:{secrets.token_hex(8)}"
        self._heard: frozenset[Place] = frozenset()
        """The places whose markers the blocking connection waits for at the moment."""
        self._nudged = False
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
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
        if self._task is None:
            self._task = self._loop.create_task(self._hear())
        self._news.set()
        if self._heard and not self._nudged and not self._heard.issuperset(places):
            self._nudged = True
            self._send(("ZADD", self._nudge, 0, "n"), ("PEXPIRE", self._nudge, 10_000))

    def pass_on(self, places: Iterable[Place]) -> None:
        """Let another one, here or elsewhere, fetch what somebody was woken for."""
        for place in places:
            spot = self._spots.get(place)
            if (spot is None or not spot.wake_one()) and not self._closed:
                self._send(("ZADD", keys.wake(*place), 0, "w"))

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

    # The blocking connection

    async def _hear(self) -> None:
        """Wait for markers as long as anybody listens; come back after every loss of the connection."""
        failures = 0
        while not self._closed:
            try:
                link = await self._servers.blocking()
            except (LinkLost, Refused):
                await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1
                continue
            failures = 0
            try:
                if self._heard:
                    self._wake_all()  # markers may have been lost with the connection
                await self._hear_on(link)
            except (LinkLost, Refused):
                self._heard = self._heard or frozenset(self._spots)
                await asyncio.sleep(_PAUSES[0])
            finally:
                link.close()

    async def _hear_on(self, link: Link) -> None:
        while not self._closed:
            waited_for = frozenset(place for place, spot in self._spots.items() if spot.waited_for)
            if not waited_for:
                self._heard = frozenset()
                self._news.clear()
                await self._news.wait()
                continue
            self._heard, self._nudged = waited_for, False
            places = {keys.wake(*place).encode(): place for place in waited_for}
            (reply,) = await link.send(("BZPOPMIN", self._nudge, *places, _BLOCK_SECONDS))
            if isinstance(reply, hiredis.ReplyError):
                raise Refused(str(reply))
            if reply is not None and (place := places.get(reply[0])) is not None:
                spot = self._spots.get(place)
                if spot is None or not spot.wake_one():
                    self._send(("ZADD", reply[0].decode(), 0, "w"))  # nobody waits here any more: for another process

    def _send(self, *commands: tuple[str | int, ...]) -> None:
        task = self._loop.create_task(self._errand(*commands))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _errand(self, *commands: tuple[str | int, ...]) -> None:
        with contextlib.suppress(GodwitError, Refused):  # a marker lost is found by the next look
            await self._servers.ask(*commands)

    def _wake_all(self) -> None:
        for spot in self._spots.values():
            while spot.wake_one():
                pass

    async def close(self) -> None:
        """End all waiting."""
        self._closed = True
        for spot in self._spots.values():
            spot.disarm()
        self._wake_all()
        tasks = [task for task in (self._task, *self._errands) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
