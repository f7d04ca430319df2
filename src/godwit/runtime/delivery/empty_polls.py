"""Where a worker's consumers last looked in vain, so that those who wait at one place need not all look."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta

from godwit.brokers.contract import Place


class EmptyPollCache:
    """When each place was last found empty, or began to be looked at, by any consumer of a worker."""

    def __init__(self) -> None:
        self._empty: dict[Place, float] = {}

    def found_nothing(self, place: Place) -> None:
        """Remember that there was nothing just now."""
        self._empty[place] = time.monotonic()

    def recent(self, places: Iterable[Place], within: timedelta) -> bool:
        """Say whether every one of these places was found empty within this time."""
        since = time.monotonic() - within.total_seconds()
        return all(self._empty.get(place, 0.0) > since for place in places)

    def take_turn(self, places: Sequence[Place], within: timedelta) -> bool:
        """Say whether the caller shall look: of those whose waiting ends at the same moment only the first."""
        if self.recent(places, within):
            return False
        for place in places:
            self.found_nothing(place)
        return True
