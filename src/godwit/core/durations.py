"""Durations as text: one grammar for godwit.toml, variables, options of URLs, the command line and rates."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
FORMS: Final = '"500ms", "30s", "5m", "1h", "7d"'
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|)")
_LONGEST_TEXT: Final = 40


class NotADuration(ValueError):
    """The text is no number with a unit, or longer than any time there is."""


def parse_duration(text: str, *, bare: str | None = None) -> timedelta:
    """Return what `500ms`, `30s`, `5m`, `1h`, `7d` say; a bare number counts `bare`, and is refused without it."""
    match = _DURATION.fullmatch(text.strip())
    unit = match[2] or bare if match is not None else None
    if match is None or unit is None or len(text) > _LONGEST_TEXT:
        raise NotADuration(text)
    return duration_of(float(match[1]), unit)


def duration_of(number: float, unit: str) -> timedelta:
    """Return so many of a unit, to the millisecond."""
    try:
        return timedelta(milliseconds=round(number * UNITS[unit] / UNITS["ms"]))
    except (OverflowError, ValueError):
        raise NotADuration(number) from None


def written(duration: timedelta) -> str:
    """Return a duration as `parse_duration` reads it, in the largest unit that gives a whole number."""
    if not duration:
        return "0s"
    for unit in ("d", "h", "m", "s", "ms"):
        if not duration % UNITS[unit]:
            return f"{duration // UNITS[unit]}{unit}"
    return f"{duration / UNITS['ms']:.15g}ms"
