"""Structured logs on the standard library: a constant message plus fields.

    log = get_logger(__name__)
    log.warning("leases not renewed", count=3)

Records carry the fields as `record.fields`, and end with them as `name=value` in plain text. Nothing is printed that
the application's logging does not ask for; payloads are never logged.
"""

from __future__ import annotations

import json
import logging
from typing import Any

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
        """Say what somebody should look at."""
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
        if self._logger.isEnabledFor(level):
            text = " ".join((message, *(f"{name}={shown(value)}" for name, value in fields.items())))
            extra = {"event": message, "fields": fields}
            self._logger.log(level, "%s", text, exc_info=exc_info or None, extra=extra, stacklevel=3)


def get_logger(name: str) -> Log:
    """Return the log of a module."""
    return Log(name)


def shown(value: Any) -> str:
    """Return a field's value in a line of text: quoted when it has spaces, never with line breaks."""
    text = str(value)
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
            found.setdefault(name, value if isinstance(value, _PLAIN) else str(value))
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found)
