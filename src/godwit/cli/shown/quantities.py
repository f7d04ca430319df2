"""Numbers, sizes and durations as text for people."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

SIZES: Final = ("B", "KB", "MB", "GB", "TB")
KILO: Final = 1024


def count_text(number: int, thing: str) -> str:
    """Return `1 message`, `2,000 messages`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def size_text(number: float) -> str:
    """Return a number of bytes: 0 B, 812 B, 1.4 MB."""
    for unit in SIZES:
        if number < KILO or unit == SIZES[-1]:
            break
        number /= KILO
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


def duration_text(length: timedelta) -> str:
    """Return a duration: 350 ms, 4.2 s, 3.0 min, 5.0 h, 2.1 d."""
    seconds = length.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, seconds_each in (("s", 1.0), ("min", 60.0), ("h", 3_600.0)):
        if seconds < seconds_each * 120:
            return f"{seconds / seconds_each:.1f} {unit}"
    return f"{seconds / 86_400:.1f} d"
