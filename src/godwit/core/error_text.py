"""The text of an error that may be hostile: whatever its class does when it is shown, these functions return a string.

The text has neither lone surrogates nor NUL, so that every broker, store and journal can carry it.
"""

from __future__ import annotations

import traceback
from typing import Final

TEXT_CHARACTERS: Final = 2_000
TRACEBACK_CHARACTERS: Final = 8_000


def type_name(error: BaseException) -> str:
    """Return the name of an error's class."""
    return str(type.__getattribute__(type(error), "__name__"))


def error_text(error: BaseException, *, limit: int = TEXT_CHARACTERS) -> str:
    """Return `str(error)`, or its type and why it cannot be shown; an error without a text is shown by its type."""
    try:
        text = clean(str(error), limit=limit)
    except KeyboardInterrupt:
        raise
    except BaseException as second:  # noqa: BLE001 - an error's own text must not stop what handles the error
        return f"{type_name(error)} (its text cannot be shown: {type_name(second)})"
    return text or type_name(error)


def value_text(value: object) -> str:
    """Return `str(value)` whatever its class does."""
    try:
        return clean(str(value), limit=TRACEBACK_CHARACTERS)
    except KeyboardInterrupt:
        raise
    except BaseException as second:  # noqa: BLE001 - as above
        return f"a value that cannot be shown ({type_name(second)})"


def showable(error: BaseException) -> bool:
    """Say whether Python's own traceback of an error can be made and written, as logging and error trackers do it."""
    try:
        "".join(traceback.format_exception(error, limit=1)).encode()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - as above
        return False
    return True


def traceback_text(error: BaseException, *, limit: int = TRACEBACK_CHARACTERS) -> str:
    """Return the traceback as Python prints it, its end if it is long; without one that can be shown, the text."""
    try:
        text = "".join(traceback.format_exception(error, limit=-50))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - as above
        return error_text(error, limit=limit)
    return clean(text[-limit:], limit=limit)


def clean(text: str, *, limit: int) -> str:
    """Return the beginning of a text with lone surrogates and NUL written as escapes."""
    plain = str.__getitem__(text, slice(limit))
    if not plain.isascii():
        plain = plain.encode("utf-8", "backslashreplace").decode()
    return plain.replace("\0", "\\x00") if "\0" in plain else plain
