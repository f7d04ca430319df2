"""Waiting for something to pull, in the event loop of a memory broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from godwit.brokers.contract import Place
from godwit.core.clock import Clock
from godwit.core.errors import NotFoundError

Look = Callable[[Place], tuple[int, int | None]]
"""How many messages of a place are ready, and when the next may become so by itself."""


class Listeners:
    """Who listens where, and one timer for each place where something is due."""

    def __init__(self, look: Look, clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._places: dict[Place, dict[Listener, None]] = {}
        self._timers: dict[Place, tuple[int, asyncio.TimerHandle]] = {}

    def listen(self, places: Sequence[Place]) -> Listener:
        """Return a listener for several places."""
        listener = Listener(self, places)
        for place in places:
            self._places.setdefault(place, {})[listener] = None
        return listener

    def forget(self, listener: Listener) -> None:
        """Take a listener off; what it was woken for is for the others."""
        for place in listener.places:
            if listener in self._places.get(place, ()):
                del self._places[place][listener]
                if not self._places[place]:
                    del self._places[place]
                    self._disarm(place)
        self.notify()

    def notify(self) -> None:
        """Wake as many listeners as there are messages for them, and set the timers."""
        for place in list(self._places):
            try:
                ready, due_ms = self._look(place)
            except NotFoundError:
                self.wake(place)
                continue
            if ready:
                self.wake(place, ready)
            if due_ms is not None:
                self._arm(place, due_ms)

    def watch(self, places: Sequence[Place]) -> None:
        """Set the timers of places where somebody begins to wait."""
        for place in places:
            try:
                _, due_ms = self._look(place)
            except NotFoundError:
                continue
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
        self._timers.pop(place, None)
        if place in self._places:
            self.wake(place, 1)


class Listener:
    """Remembers between `clear` and `wait` that something may be ready, so that no wake-up is lost."""

    def __init__(self, listeners: Listeners, places: Sequence[Place]) -> None:
        self.places = tuple(places)
        self._listeners = listeners
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def waits(self) -> bool:
        """Whether somebody waits here and was not woken yet."""
        return self._waiter is not None and not self._waiter.done()

    def clear(self) -> None:
        """Forget earlier wake-ups; call it before pulling."""
        self._woken = False

    def wake(self) -> None:
        """Say that something may be ready."""
        self._woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, timeout: timedelta) -> None:  # noqa: ASYNC109
        """Return when something may have become ready since `clear`, at the latest after `timeout`."""
        seconds = timeout.total_seconds()
        if self._woken or seconds <= 0:
            await asyncio.sleep(0)  # nobody may keep the loop to himself
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        self._listeners.watch(self.places)
        timer = loop.call_later(seconds, self.wake)
        try:
            await self._waiter
        except asyncio.CancelledError:
            self._waiter = None
            self._listeners.notify()  # it may have been woken for something: let another fetch it
            raise
        finally:
            timer.cancel()
            self._waiter = None

    def close(self) -> None:
        """Listen no more."""
        self._listeners.forget(self)
