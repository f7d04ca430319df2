"""Sizes, rates and durations as a finding says them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "KB", "MB", "GB", "TB")
_KILO: Final = 1024
_LENGTHS: Final = (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0))


def size(number: float) -> str:
    """Return bytes in a few characters."""
    for unit in _UNITS:
        if number < _KILO or unit == _UNITS[-1]:
            break
        number /= _KILO
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


def rate_in_words(bytes_per_second: float) -> str:
    """Return a rate."""
    return f"{size(bytes_per_second)}/s"


def seconds_in_words(seconds: float) -> str:
    """Return a duration: 0.42 ms, 350 ms, 4.2 s, 3.0 min, 5.0 h, 2.1 d."""
    for unit, each in _LENGTHS:
        if seconds >= each * (2 if unit != "s" else 1):
            return f"{seconds / each:.1f} {unit}"
    return f"{seconds * 1000:.3g} ms"
