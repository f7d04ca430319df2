"""Structured logs on the standard library: a constant message plus fields.

    log = get_logger(__name__)
    log.warning("leases not renewed", count=3)

Records carry the fields as `record.fields`, and end with them as `name=value` in plain text. Nothing is printed that
the application's logging does not ask for; payloads are never logged.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from godwit.core.error_text import error_text, showable, type_name, value_text

REPEAT_SECONDS: Final = 60.0
"""How often a trouble that goes on is logged again."""
_PLAIN = (str, int, float, bool, type(None))


class Log:
    """Writes constant messages with fields to one of the standard library's loggers."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    @property
    def wants_debug(self) -> bool:
        """Whether lines for developers are written."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def debug(self, message: str, **fields: Any) -> None:
        """Log a line for developers."""
        self._write(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        """Log a piece of news."""
        self._write(logging.INFO, message, fields)

    def warning(self, message: str, *, exc_info: BaseException | bool = False, **fields: Any) -> None:
        """Log a warning."""
        self._write(logging.WARNING, message, fields, exc_info=exc_info)

    def error(self, message: str, *, exc_info: BaseException | bool = False, **fields: Any) -> None:
        """Log an error."""
        self._write(logging.ERROR, message, fields, exc_info=exc_info)

    def exception(self, message: str, **fields: Any) -> None:
        """Log an error, with the traceback of the error being handled."""
        self._write(logging.ERROR, message, fields, exc_info=True)

    def _write(
        self, level: int, message: str, fields: dict[str, Any], *, exc_info: BaseException | bool = False
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        error = sys.exc_info()[1] if exc_info is True else exc_info or None
        if error is not None and not showable(error):
            fields, error = {**fields, "error": f"{type_name(error)}: {error_text(error)}"}, None
        text = " ".join((message, *(f"{name}={shown(value)}" for name, value in fields.items())))
        try:
            self._logger.log(
                level, "%s", text, exc_info=error, extra={"event": message, "fields": fields}, stacklevel=3
            )
        except KeyboardInterrupt:
            raise
        except BaseException as second:  # noqa: BLE001 - an application's handler or filter must not stop what logs
            sys.stderr.write(f"{text}\n(the log could not be written: {type_name(second)})\n")


class RepeatedTrouble:
    """A trouble that comes again and again: logged when it begins, then once a minute with its count, and when it ends.

    One belongs to one loop that tries again; `fields` say which.
    """

    __slots__ = ("_came", "_clock", "_fields", "_log", "_message", "_next_at", "_since")

    def __init__(self, log: Log, message: str, clock: Callable[[], float] = time.monotonic, **fields: Any) -> None:
        self._log, self._message, self._clock, self._fields = log, message, clock, fields
        self._came, self._since, self._next_at = 0, 0.0, 0.0

    @property
    def is_there(self) -> bool:
        """Whether it came and is not over."""
        return self._came > 0

    def came(self, error: BaseException, **fields: Any) -> None:
        """Log it, unless it was logged less than a minute ago."""
        now = self._clock()
        self._came += 1
        if self._came == 1:
            self._since = now
        elif now < self._next_at:
            return
        self._next_at = now + REPEAT_SECONDS
        counted: dict[str, Any] = {}
        if self._came > 1:
            counted = {"times": self._came, "for_seconds": round(now - self._since)}
        text = error_text(error) or type_name(error)
        self._log.warning(self._message, **self._fields, **fields, error=text, **counted)

    def over(self, message: str) -> None:
        """Log that it is over, if it had come."""
        if self._came:
            lasted = round(self._clock() - self._since, 1)
            self._log.info(message, **self._fields, times=self._came, after_seconds=lasted)
            self._came = 0


def get_logger(name: str) -> Log:
    """Return the log of a module."""
    return Log(name)


def shown(value: Any) -> str:
    """Return a field's value in a line of text: quoted when it has spaces, never with line breaks."""
    text = value_text(value)
    return json.dumps(text) if not text or any(character.isspace() or character == '"' for character in text) else text


class JsonLines(logging.Formatter):
    """Formats records as one JSON object a line, for machines; times in UTC with milliseconds."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        found: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", record.getMessage()),
        }
        for name, value in getattr(record, "fields", {}).items():
            found.setdefault(name, value if type(value) in _PLAIN else value_text(value))
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found)
