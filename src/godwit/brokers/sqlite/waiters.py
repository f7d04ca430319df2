"""Pulls that wait: one timer and one socket per process, however many they are.

A place is a queue and a group. Whatever may have made something ready there leads to `_check`, which reads (it writes
nothing) and wakes the first who waits; what he leaves behind he leads to the next.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from godwit.brokers.sqlite.runs import Runs
from godwit.brokers.sqlite.survey import Outlook, outlook
from godwit.brokers.sqlite.work import Work
from godwit.core.clock import Clock
from godwit.core.errors import GodwitError
from godwit.core.names import GroupName, QueueName

LOOK_SECONDS: Final = 0.25
"""How often to ask the file whether anybody wrote: for wake-ups that got lost, and for clocks that jump."""

Address = tuple[QueueName, GroupName]
Waiter = asyncio.Future[bool]


class Place:
    """Those who wait for one group."""

    __slots__ = ("busy", "due_ms", "missed", "waiters")

    def __init__(self) -> None:
        self.waiters: deque[Waiter] = deque()
        self.due_ms: int | None = None
        self.busy = 0
        """How many have been woken and are looking now."""
        self.missed = False
        """Whether there was news while somebody looked."""


class Waiters:
    """All waiting pulls of one broker."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._runs = Runs(connection)
        self._clock = clock
        self._loop = loop
        self._places: dict[Address, Place] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._seen = -1
        self._closed = False

    def attend(self, address: Address) -> None:
        """Say that somebody is about to look for work there, and waits if there is none."""
        place = self._places.setdefault(address, Place())
        place.busy += 1

    def leave(self, address: Address, *, more: bool) -> None:
        """Say that he has looked and goes away; with `more` there may be something for the next."""
        place = self._places[address]
        place.busy -= 1
        if (more or place.missed) and place.waiters:
            self._check(address, place)
        self._tidy(address, place)

    async def wait(self, address: Address, until: float) -> bool:
        """Wait, having looked in vain, until looking again may help; False when the time is up."""
        place = self._places[address]
        waiter: Waiter = self._loop.create_future()
        place.waiters.appendleft(waiter)
        place.busy -= 1
        timer = self._loop.call_at(until, _resolve, waiter, False)  # noqa: FBT003
        if place.due_ms is None or place.missed:
            self._check(address, place)
        self._start()
        try:
            woken = await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                place.busy -= 1
                self._check(address, place)  # he was meant to fetch something: let another do it
            raise
        finally:
            timer.cancel()
            if waiter in place.waiters:
                place.waiters.remove(waiter)
            self._tidy(address, place)
        if not woken:
            self.attend(address)
        return woken

    def news(self, queues: Iterable[str]) -> None:
        """Look after places of these queues: something may be ready there."""
        names = set(queues)
        for address, place in list(self._places.items()):
            if address[0] in names:
                self._check(address, place)

    def _check(self, address: Address, place: Place) -> None:
        """Wake the first who waits if a pull would find something, or must be made to be seen to wait."""
        if not place.waiters:
            place.missed = True
            return
        place.missed = bool(place.busy)
        now_ms = self._clock.now_ms()
        try:
            found = self._outlook(address)
        except (GodwitError, sqlite3.Error):
            found = Outlook(ready=True, due_ms=None, renew_ms=None)  # a pull will say what is wrong
        times = [time for time in (found.due_ms, found.renew_ms) if time is not None]
        place.due_ms = min(times, default=None)
        if (found.ready or (place.due_ms is not None and place.due_ms <= now_ms)) and not place.busy:
            self._wake(place)
        self._start()

    def _outlook(self, address: Address) -> Outlook:
        self._connection.execute("BEGIN")
        try:
            return outlook(Work(self._connection, self._runs, self._clock, {}), *address)
        finally:
            self._connection.execute("COMMIT")

    def _wake(self, place: Place) -> None:
        while place.waiters:
            if _resolve(place.waiters.popleft(), True):  # noqa: FBT003
                place.busy += 1
                return

    def _tidy(self, address: Address, place: Place) -> None:
        if not place.waiters and not place.busy and self._places.get(address) is place:
            del self._places[address]

    # The timer

    def _start(self) -> None:
        """Set the timer to the next moment something is due, or to the next look at the file."""
        if self._closed:
            return
        now_ms = self._clock.now_ms()
        delay = LOOK_SECONDS
        for place in self._places.values():
            if place.due_ms is not None and place.waiters:
                delay = min(delay, max(0.001, (place.due_ms - now_ms) / 1000))
        when = self._loop.time() + delay
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        if not any(place.waiters for place in self._places.values()):
            return
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            version = -1
        changed, self._seen = version != self._seen, version
        now_ms = self._clock.now_ms()
        for address, place in list(self._places.items()):
            if place.waiters and (changed or (place.due_ms is not None and place.due_ms <= now_ms)):
                self._check(address, place)
        self._start()

    def close(self) -> None:
        """End all waiting."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for place in list(self._places.values()):
            while place.waiters:
                self._wake(place)
        self._connection.close()


def _resolve(waiter: Waiter, woken: bool) -> bool:  # noqa: FBT001
    if waiter.done():
        return False
    waiter.set_result(woken)
    return True


Heard = Callable[[set[str]], None]
