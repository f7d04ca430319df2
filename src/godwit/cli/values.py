"""From words on the command line to values; what cannot be read is refused with the form that can."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

import msgspec
import typer

UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "": 1.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")
_DURATION_FORMS = "Use a number with a unit: 500ms, 5s, 10m, 2h, 7d"


def duration(text: str | timedelta) -> timedelta:
    """Read `500ms`, `5s`, `10m`, `2h`, `7d`; a bare number counts seconds."""
    if isinstance(text, timedelta):  # a default
        return text
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a duration. {_DURATION_FORMS}.")
    try:
        return timedelta(seconds=float(found[1]) * UNITS[found[2]])
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is longer than time lasts. {_DURATION_FORMS}.") from None


def instant(text: str | datetime) -> datetime:
    """Read an ISO 8601 instant with its time zone."""
    if isinstance(text, datetime):
        return text
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not an instant. Use ISO 8601, such as 2030-01-31T09:00:00Z.") from None
    if moment.utcoffset() is None:
        raise typer.BadParameter(
            f"{text!r} has no time zone. Add one: {text.strip()}Z for UTC, {text.strip()}+02:00 for an offset."
        )
    return moment


def duration_or_instant(text: str | timedelta | datetime) -> timedelta | datetime:
    """Read a time from now (`2h`) or an instant (`2030-01-31T09:00:00Z`)."""
    if not isinstance(text, str):
        return text
    return duration(text) if _DURATION.fullmatch(text.strip()) else instant(text)


def pairs(words: list[str]) -> dict[str, str]:
    """Read `KEY=VALUE` words."""
    read: dict[str, str] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise typer.BadParameter(f"{word!r} is not KEY=VALUE. Write --attribute region=eu.")
        read[key] = value
    return read


def in_words(length: timedelta) -> str:
    """Return a duration for a person: 350 ms, 4.2 s, 3 min, 5.0 h, 2.1 d."""
    seconds = length.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, size in (("s", 1.0), ("min", 60.0), ("h", 3_600.0)):
        if seconds < size * 120:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86_400:.1f} d"


def as_json_text(value: object) -> str:
    """Return a value as compact JSON."""
    return msgspec.json.encode(value).decode()
