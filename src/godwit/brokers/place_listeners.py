"""Who listens where in one event loop: who is woken first, and one timer for each place where something is due."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from godwit.brokers.contract import Place
from godwit.brokers.listener import LoopListener
from godwit.core.clock import Clock


def _unnoticed(_place: Place) -> None:
    """Let listeners come and go."""


class PlaceListeners(ABC):
    """The line of listeners at each place. A broker says when something is ready and what to do when time is up."""

    def __init__(
        self,
        clock: Clock,
        *,
        entered: Callable[[Place], None] = _unnoticed,
        left: Callable[[Place], None] = _unnoticed,
    ) -> None:
        self._clock = clock
        self._entered, self._left = entered, left
        self._places: dict[Place, dict[LoopListener, None]] = {}
        self._timers: dict[Place, tuple[int, asyncio.TimerHandle]] = {}

    @abstractmethod
    def look(self, places: Sequence[Place]) -> None:
        """Wake who listens at these places if there is something for them, and set the timers."""

    @abstractmethod
    def _due(self, place: Place, due_ms: int) -> None:
        """Do what has to be done when the time of a place's timer has come; a pull listens there."""

    def listen(self, places: Sequence[Place]) -> LoopListener:
        """Return a listener for several places."""
        listener = LoopListener(self, places)
        for place in listener.places:
            self._places.setdefault(place, {})[listener] = None
            self._entered(place)
        return listener

    def forget(self, listener: LoopListener) -> None:
        """Take a listener off; what it was woken for is for the others."""
        for place in listener.places:
            if listener in self._places.get(place, ()):
                del self._places[place][listener]
                self._left(place)
                if not self._places[place]:
                    del self._places[place]
                    self._disarm(place)
        self.notify()

    def listened(self) -> list[Place]:
        """Return the places where pulls listen."""
        return list(self._places)

    def notify(self) -> None:
        """Look everywhere."""
        self.look(self.listened())

    def wake(self, place: Place, count: int | None = None) -> None:
        """Wake listeners of a place, those that have waited longest first; without a count, all."""
        left = len(self._places[place]) if count is None else count
        for listener in list(self._places[place]):
            if left and listener.waits:
                left -= 1
                # To the end of the line: the next message is for another listener.
                del self._places[place][listener]
                self._places[place][listener] = None
                listener.wake()
            elif not listener.waits:
                listener.wake()

    def wake_all(self) -> None:
        """Wake every listener."""
        for place in self.listened():
            self.wake(place)
            self._disarm(place)

    def _arm(self, place: Place, due_ms: int) -> None:
        armed = self._timers.get(place)
        if armed is not None and armed[0] <= due_ms:
            return
        self._disarm(place)
        seconds = max(0.001, (due_ms - self._clock.now_ms()) / 1000)
        self._timers[place] = (due_ms, asyncio.get_running_loop().call_later(seconds, self._ring, place))

    def _disarm(self, place: Place) -> None:
        armed = self._timers.pop(place, None)
        if armed is not None:
            armed[1].cancel()

    def _ring(self, place: Place) -> None:
        due_ms, _ = self._timers.pop(place)
        if place in self._places:
            self._due(place, due_ms)
