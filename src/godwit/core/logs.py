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
from typing import Any

from godwit.core.error_text import error_text, showable, type_name, value_text

_PLAIN = (str, int, float, bool, type(None))


class Log:
    """Writes constant messages with fields to one of the standard library's loggers."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, **fields: Any) -> None:
        """Say what only a developer wants to know."""
        self._write(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        """Say what happened."""
        self._write(logging.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        """Log a warning."""
        self._write(logging.WARNING, message, fields)

    def error(self, message: str, *, exc_info: BaseException | bool = False, **fields: Any) -> None:
        """Say what went wrong."""
        self._write(logging.ERROR, message, fields, exc_info=exc_info)

    def exception(self, message: str, **fields: Any) -> None:
        """Say what went wrong, with the traceback of the error being handled."""
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


def get_logger(name: str) -> Log:
    """Return the log of a module."""
    return Log(name)


def shown(value: Any) -> str:
    """Return a field's value in a line of text: quoted when it has spaces, never with line breaks."""
    text = value_text(value)
    return json.dumps(text) if not text or any(character.isspace() or character == '"' for character in text) else text


class JsonLines(logging.Formatter):
    """Formats records as one JSON object a line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        found: dict[str, Any] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", record.getMessage()),
        }
        for name, value in getattr(record, "fields", {}).items():
            found.setdefault(name, value if type(value) in _PLAIN else value_text(value))
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found)
