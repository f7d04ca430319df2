"""A moment in every second for what a process does again and again: waking up once costs less than twice.

Every process has a moment of its own, so that they do not all wake up at the same time.
"""

from __future__ import annotations

import os
from typing import Final

_GOLDEN: Final = 0.618_033_988_7
"""Spreads the numbers of processes evenly over a second."""


def until_beat(now: float, delay: float) -> float:
    """Return how long to wait for this process's moment nearest to `delay` seconds from `now`."""
    moment = os.getpid() * _GOLDEN % 1.0
    return max(moment + round(now + delay - moment) - now, delay / 2)
