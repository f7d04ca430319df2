"""Waiting for something to pull: one timer and one socket per process, however many wait.

Whatever may have made something ready leads to `_check`, which only reads, and wakes as many as there are messages.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from godwit.brokers.contract import Place
from godwit.brokers.listener import LoopListener
from godwit.brokers.sqlite.layout.runs import Runs
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.brokers.sqlite.stats import Outlook, outlook
from godwit.core.clock import Clock
from godwit.core.errors import GodwitError
from godwit.core.tick_phase import until_beat

LOOK_SECONDS: Final = 0.25
"""How soon to ask the file whether a process wrote: for wake-ups that got lost, and for clocks that jump."""
SELDOM_SECONDS: Final = 1.0
"""How often to ask while nothing happens: wake-ups get lost where many are sent."""


class WaitTimer:
    """Those who listen at one place, and when something is due there."""

    __slots__ = ("due_ms", "listeners")

    def __init__(self) -> None:
        self.listeners: dict[LoopListener, None] = {}
        self.due_ms: int | None = None

    @property
    def waited_for(self) -> bool:
        """Whether a pull waits here now."""
        return any(listener.waits for listener in self.listeners)


class SqliteListeners:
    """Who listens where, in one broker."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._runs = Runs(connection)
        self._clock = clock
        self._loop = loop
        self._spots: dict[Place, WaitTimer] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._pause = LOOK_SECONDS
        self._seen = -1
        self._closed = False

    @property
    def any_there(self) -> bool:
        """Whether a pull listens; a new listener looks before it waits."""
        return bool(self._spots)

    def listen(self, places: Sequence[Place]) -> LoopListener:
        """Return a listener for several places."""
        listener = LoopListener(self, places)
        for place in listener.places:
            self._spots.setdefault(place, WaitTimer()).listeners[listener] = None
        return listener

    def forget(self, listener: LoopListener) -> None:
        """Take a listener off."""
        for place in listener.places:
            spot = self._spots.get(place)
            if spot is not None:
                spot.listeners.pop(listener, None)
                if not spot.listeners:
                    del self._spots[place]

    def news(self, queues: Iterable[str]) -> None:
        """Look at the places of these queues: something may be ready there."""
        names = set(queues)
        self._pause = LOOK_SECONDS
        for place in [place for place in self._spots if place[0] in names]:
            self.check(place)

    def look(self, places: Sequence[Place]) -> None:
        """Look at several places."""
        for place in places:
            self.check(place)

    def check(self, place: Place) -> None:
        """Wake as many of those who listen at a place as there are messages for them."""
        spot = self._spots.get(place)
        if spot is None or self._closed:
            return
        if not spot.waited_for:
            self._wake(spot, 0)
            return
        try:
            found = self._outlook(place)
        except (GodwitError, sqlite3.Error):
            self._wake(spot, len(spot.listeners))  # their pulls will say what is wrong
            return
        spot.due_ms = min((time for time in (found.due_ms, found.renew_ms) if time is not None), default=None)
        due = spot.due_ms is not None and spot.due_ms <= self._clock.now_ms()
        if due:
            spot.due_ms = None  # the pull that follows brings it up to date
        if found.ready or due:
            self._pause = LOOK_SECONDS
            self._wake(spot, found.ready or 1)
        self._start()

    def _outlook(self, place: Place) -> Outlook:
        self._connection.execute("BEGIN")
        try:
            return outlook(SqliteStep(self._connection, self._runs, self._clock, {}), *place)
        finally:
            self._connection.execute("COMMIT")

    def _wake(self, spot: WaitTimer, count: int) -> None:
        """Wake those who have waited longest; those who do not wait are only told."""
        for listener in list(spot.listeners):
            if not listener.waits:
                listener.wake()
            elif count:
                count -= 1
                # To the end of the line: the next message is for another listener.
                del spot.listeners[listener]
                spot.listeners[listener] = None
                listener.wake()

    # The timer

    def _start(self) -> None:
        """Set the timer to the next moment something is due, or to the next look at the file."""
        if self._closed:
            return
        now_ms = self._clock.now_ms()
        now = self._loop.time()
        delay = self._pause if self._pause < SELDOM_SECONDS else until_beat(now, SELDOM_SECONDS)
        for spot in self._spots.values():
            if spot.due_ms is not None:
                delay = min(delay, max(0.001, (spot.due_ms - now_ms) / 1000))
        when = now + delay
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        """Check places where something is due, and all when a process has written."""
        self._timer = None
        waited_for = [(place, spot) for place, spot in self._spots.items() if spot.waited_for]
        if not waited_for:
            return
        self._pause = min(2 * self._pause, SELDOM_SECONDS)
        changed = self._file_changed()
        now_ms = self._clock.now_ms()
        for place, spot in waited_for:
            if changed or (spot.due_ms is not None and spot.due_ms <= now_ms):
                self.check(place)
        self._start()

    def _file_changed(self) -> bool:
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return True
        changed, self._seen = version != self._seen, version
        return bool(changed)

    def close(self) -> None:
        """End all waiting."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for spot in list(self._spots.values()):
            self._wake(spot, len(spot.listeners))
        self._connection.close()
