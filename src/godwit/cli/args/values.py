"""From words on the command line to values; what cannot be read is refused with the form that can."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from godwit.core.durations import NotADuration, parse_duration
from godwit.core.errors import InvalidArgumentError

_DURATION_FORMS: Final = "Use a number with a unit: 500ms, 5s, 10m, 2h, 7d."


class Misuse(InvalidArgumentError):
    """A command was called in a way that makes no sense."""

    def __init__(self, fact: str, remedy: str) -> None:
        self._fact, self._remedy = fact, remedy
        super().__init__(fact, remedy)

    @property
    def fact(self) -> str:
        return self._fact

    @property
    def remedy(self) -> str:
        return self._remedy


def duration(text: str | timedelta) -> timedelta:
    """Read `500ms`, `5s`, `10m`, `2h`, `7d`; a bare number counts seconds."""
    if isinstance(text, timedelta):  # a default
        return text
    try:
        return parse_duration(text, bare="s")
    except NotADuration:
        raise Misuse(f"{text!r} is not a duration", _DURATION_FORMS) from None


def instant(text: str | datetime) -> datetime:
    """Read an ISO 8601 instant with its time zone."""
    if isinstance(text, datetime):
        return text
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Misuse(f"{text!r} is not an instant", "Use ISO 8601, such as 2030-01-31T09:00:00Z.") from None
    if moment.utcoffset() is None:
        raise Misuse(
            f"{text!r} has no time zone", f"Add one: {text.strip()}Z for UTC, {text.strip()}+02:00 for an offset."
        )
    return moment


def duration_or_instant(text: str | timedelta | datetime) -> timedelta | datetime:
    """Read a time from now (`2h`) or an instant (`2030-01-31T09:00:00Z`)."""
    if not isinstance(text, str):
        return text
    try:
        return parse_duration(text, bare="s")
    except NotADuration:
        return instant(text)


def whole(least: int, most: int) -> Callable[[str | int], int]:
    """Return a reader of whole numbers within limits."""

    def read(text: str | int) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise Misuse(f"{text!r} is out of range", f"Use a whole number from {least:,} to {most:,}.")
        return number

    return read


def pairs(words: list[str]) -> dict[str, str]:
    """Read `KEY=VALUE` words."""
    read: dict[str, str] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise Misuse(f"{word!r} is not KEY=VALUE", "Write it like region=eu.")
        read[key] = value
    return read
