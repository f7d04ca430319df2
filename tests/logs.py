"""Reading what is logged, in tests."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Gathering(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.entries: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = getattr(record, "fields", {})
        entry = {**fields, "event": getattr(record, "event", ""), "log_level": record.levelname.lower()}
        if record.exc_info:
            entry["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        self.entries.append(entry)


@contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    """Give a list that grows by every line Godwit logs: its fields, `event` and `log_level`."""
    logger, handler = logging.getLogger("godwit"), _Gathering()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler.entries
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
