"""Waiting for something to pull, in the event loop of a memory broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from godwit.brokers.contract import Place
from godwit.brokers.listener import LoopListener
from godwit.core.clock import Clock
from godwit.core.errors import NotFoundError

Look = Callable[[Place], tuple[int, int | None]]
"""How many messages of a place are ready, and when the next may become so by itself."""
Attend = Callable[[Place, int], None]
"""Told of a place that somebody watched until an instant."""


class Listeners:
    """Who listens where, and one timer for each place where something is due."""

    def __init__(self, look: Look, attend: Attend, clock: Clock) -> None:
        self._look = look
        self._attend = attend
        self._clock = clock
        self._places: dict[Place, dict[LoopListener, None]] = {}
        self._timers: dict[Place, tuple[int, asyncio.TimerHandle]] = {}

    def listen(self, places: Sequence[Place]) -> LoopListener:
        """Return a listener for several places."""
        listener = LoopListener(self, places)
        for place in places:
            self._places.setdefault(place, {})[listener] = None
        return listener

    def forget(self, listener: LoopListener) -> None:
        """Take a listener off; what it was woken for is for the others."""
        for place in listener.places:
            if listener in self._places.get(place, ()):
                del self._places[place][listener]
                if not self._places[place]:
                    del self._places[place]
                    self._disarm(place)
        self.notify()

    def notify(self) -> None:
        """Look everywhere."""
        self.look(list(self._places))

    def look(self, places: Sequence[Place]) -> None:
        """Wake listeners of these places if there are messages for them, and set the timers."""
        for place in places:
            if place not in self._places:
                continue
            try:
                ready, due_ms = self._look(place)
            except NotFoundError:
                self.wake(place)
                continue
            if ready:
                self.wake(place, ready)
            if due_ms is not None:
                self._arm(place, due_ms)

    def wake(self, place: Place, count: int | None = None) -> None:
        """Wake listeners of a place, those that have waited longest first; without a count, all."""
        left = len(self._places[place]) if count is None else count
        for listener in list(self._places[place]):
            if left and listener.waits:
                left -= 1
                # To the end of the line: the next message is for somebody else.
                del self._places[place][listener]
                self._places[place][listener] = None
                listener.wake()
            elif not listener.waits:
                listener.wake()

    def wake_all(self) -> None:
        """Wake everybody."""
        for place in list(self._places):
            self.wake(place)
            self._disarm(place)

    def _arm(self, place: Place, due_ms: int) -> None:
        armed = self._timers.get(place)
        if armed is not None and armed[0] <= due_ms:
            return
        self._disarm(place)
        seconds = max(0.001, (due_ms - self._clock.now_ms()) / 1000)
        self._timers[place] = (due_ms, asyncio.get_running_loop().call_later(seconds, self._due, place))

    def _disarm(self, place: Place) -> None:
        armed = self._timers.pop(place, None)
        if armed is not None:
            armed[1].cancel()

    def _due(self, place: Place) -> None:
        """One listener looks; its pull notifies the others and sets the next timer."""
        armed = self._timers.pop(place, None)
        if place in self._places:
            if armed is not None:
                # Whoever waits for a lease to run out looks after the group: that is no outage.
                self._attend(place, armed[0])
            self.wake(place, 1)
