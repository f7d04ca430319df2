"""Time in which this machine's processors worked for other machines: what is promised in seconds is judged without it.

On a shared host a virtual machine can stand still for seconds. Linux counts that time ("steal" in /proc/stat), so a
test that says "within 10 s" can mean 10 s of this machine. Where nothing is stolen, nothing is forgiven.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left, bisect_right
from pathlib import Path

_STAT = Path("/proc/stat")
_STEAL = 8
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS = 0.1

_moments: list[float] = []
_totals: list[float] = []


def calm() -> float:
    """Return seconds of a clock that stands still while processors are stolen (all of them together)."""
    return time.monotonic() - _total()


def pause(earlier_ns: int, later_ns: int) -> float:
    """Return the seconds between two past moments of `time.monotonic_ns`, without what was stolen meanwhile."""
    return (later_ns - earlier_ns) / 1e9 - between(earlier_ns / 1e9, later_ns / 1e9)


def between(began: float, ended: float) -> float:
    """Return how many seconds were stolen between two past moments of `time.monotonic`, as `watch` saw them."""
    first = bisect_right(_moments, began) - 1
    last = bisect_left(_moments, ended)
    if first < 0 or not _moments:
        return 0.0
    return (_totals[last] if last < len(_totals) else _total()) - _totals[first]


def watch() -> None:
    """Start the thread that notes how much was stolen by when, for `between`."""
    threading.Thread(target=_look, name="stolen", daemon=True).start()


def _look() -> None:
    while True:
        total = _total()
        if not _totals or total != _totals[-1] or time.monotonic() - _moments[-1] > 1:
            _totals.append(total)
            _moments.append(time.monotonic())
        time.sleep(_LOOK_SECONDS)


def _total() -> float:
    try:
        with _STAT.open() as stat:
            words = stat.readline().split()
    except OSError:  # not Linux
        return 0.0
    return int(words[_STEAL]) / _TICKS_PER_SECOND
