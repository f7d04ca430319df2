"""The root of all errors, and how they show values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

SHOWN_VALUE_CHARACTERS = 80
SHOWN_NAMES = 10
LIKE: Final = 0.6
"""How much alike a name must be to be the one that was meant."""


class GodwitError(Exception):
    """The root of all errors of this library."""

    code: ClassVar[int] = 2

    @property
    def fact(self) -> str:
        """What happened, with the offending value."""
        return " ".join(str(argument) for argument in self.args)

    @property
    def remedy(self) -> str:
        """What the caller can do about it."""
        return ""

    def __str__(self) -> str:
        """Return the fact, then the remedy."""
        return f"{self.fact}. {self.remedy}" if self.remedy else self.fact


def shown(value: object) -> str:
    """Return `value` as it may appear in an error text: quoted and shortened."""
    text = repr(value)
    return text if len(text) <= SHOWN_VALUE_CHARACTERS else f"{text[:SHOWN_VALUE_CHARACTERS]}..."


def listed(names: tuple[str, ...]) -> str:
    """Return known names for an error text."""
    if not names:
        return "none"
    return ", ".join(map(repr, names[:SHOWN_NAMES])) + (", ..." if len(names) > SHOWN_NAMES else "")


def meant(name: object, known: Iterable[str]) -> str:
    """Return "Did you mean 'x'? " where one of the known names is much like `name`, else nothing."""
    from difflib import get_close_matches  # only where something went wrong: it is no small part of `import godwit`

    if not isinstance(name, str) or not name:
        return ""
    longer = [one for one in known if one.startswith(f"{name}_")]
    close = longer or get_close_matches(name, list(known), n=1, cutoff=LIKE)
    return f"Did you mean {close[0]!r}? " if close else ""
