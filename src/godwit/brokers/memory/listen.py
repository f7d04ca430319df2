"""Waiting for something to pull, in the event loop of a memory broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from godwit.brokers.contract import Place
from godwit.brokers.place_listeners import PlaceListeners
from godwit.core.clock import Clock
from godwit.core.errors import NotFoundError

Look = Callable[[Place], tuple[int, int | None]]
"""How many messages of a place are ready, and when the next may become so by itself."""
Attend = Callable[[Place, int], None]
"""Called with a place that a pull watched until an instant."""


class MemoryListeners(PlaceListeners):
    """Woken by what the engine says is ready."""

    def __init__(self, look: Look, attend: Attend, clock: Clock) -> None:
        super().__init__(clock)
        self._look, self._attend = look, attend

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

    def _due(self, place: Place, due_ms: int) -> None:
        """Wake a single listener; its pull notifies the others and sets the next timer."""
        # A pull that waits for a lease to run out maintains the group: that is no outage.
        self._attend(place, due_ms)
        self.wake(place, 1)
