"""How far a recorder is behind, and how it shares the machine with those whose work it records."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

GATHER: Final = timedelta(milliseconds=100)
"""How long transitions are gathered into one transaction."""
PATIENCE: Final = 80
"""How many times as long as it worked a recorder rests that cannot keep up anyway."""
LONGEST_REST: Final = timedelta(seconds=1)
HOPELESS: Final = 2
"""How many times as fast as it is recorded the journal grows then; below, resting half of the time is enough."""
BEHIND_MOST: Final = 500_000
"""Rows; beyond, those who fill the journal have to wait for the recorder: it must not be trimmed unread."""


class RecorderLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far the recorder is behind: rows seen and not yet recorded, and how long ago everything was recorded."""

    rows: int
    seconds: float


class Pace:
    """How a recorder shares the machine with those whose work it records.

    While the journal grows faster than it can be recorded, recording yields to the work: a backlog is worked off
    at nearly the speed of the bare broker and recorded when it is done. What is not recorded yet is looked up in the
    journal (`runtime/effects/status.py`), so that nothing is seen later for it.
    """

    def __init__(self) -> None:
        self._rows = self._looked_ms = 0
        self._growth: float | None = None
        """Rows in a millisecond, between the last two looks; None before the second."""

    def looked(self, rows: int, now_ms: int) -> None:
        """Take note of how many rows were ever written."""
        if self._looked_ms and now_ms > self._looked_ms:
            self._growth = max(0, rows - self._rows) / (now_ms - self._looked_ms)
        self._rows, self._looked_ms = rows, now_ms

    def rest(self, recorded: int, now_ms: int, behind: int) -> timedelta:
        """Return how long to rest after a tick that left rows unrecorded."""
        if self._growth is None:
            return GATHER if behind else timedelta(0)  # a worker that begins meanwhile shall not be in the way
        took_ms = max(1, now_ms - self._looked_ms)
        grown = self._growth * took_ms
        if behind > BEHIND_MOST or grown < recorded:
            return timedelta(0)  # it keeps up, be it with all it has: resting would lose what it can hold
        patience = PATIENCE if grown >= HOPELESS * recorded else 1
        return min(patience * timedelta(milliseconds=took_ms), LONGEST_REST)
