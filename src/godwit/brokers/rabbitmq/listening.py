"""Waiting for messages of a broker's places: woken by what the server sends, and by leases that run out here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from godwit.brokers.contract import Place
from godwit.brokers.listener import LoopListener
from godwit.brokers.rabbitmq.hands import Hands
from godwit.brokers.rabbitmq.intake import Intake
from godwit.core.clock import Clock


class Listeners:
    """Who listens where; the first one at a place makes the server send ahead."""

    def __init__(
        self, intake: Callable[[Place], Intake], hands: Hands, clock: Clock, care: Callable[[Place], None]
    ) -> None:
        self._intake, self._hands, self._clock, self._care = intake, hands, clock, care
        self._places: dict[Place, dict[LoopListener, None]] = {}
        self._timers: dict[Place, tuple[int, asyncio.TimerHandle]] = {}

    def listen(self, places: Sequence[Place]) -> LoopListener:
        """Return a listener for several places."""
        listener = LoopListener(self, places)
        for place in listener.places:
            self._places.setdefault(place, {})[listener] = None
            self._intake(place).enter()
        return listener

    def forget(self, listener: LoopListener) -> None:
        """Take a listener off; what it was woken for is for the others."""
        for place in listener.places:
            if listener in self._places.get(place, ()):
                del self._places[place][listener]
                self._intake(place).leave()
                if not self._places[place]:
                    del self._places[place]
                    self._disarm(place)
        self.look(list(self._places))

    def listened(self) -> list[Place]:
        """Return where somebody listens."""
        return list(self._places)

    def look(self, places: Sequence[Place]) -> None:
        """Wake who listens where something is ready, and watch for leases that run out."""
        for place in places:
            if place not in self._places:
                continue
            intake = self._intake(place)
            if intake.ready:
                self.wake(place, len(intake.buffer))
            elif not intake.consuming:
                intake.begin()
            due_ms = self._hands.next_due_ms(place)
            if due_ms is not None:
                self._arm(place, due_ms)

    def arrived(self, place: Place) -> None:
        """Wake one listener for what just came; also called when a place has to be looked at anew."""
        if place in self._places:
            self.wake(place, 1)

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
        self._timers.pop(place, None)
        if place in self._places:
            self._care(place)
