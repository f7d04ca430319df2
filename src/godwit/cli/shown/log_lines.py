"""Log lines of commands that run for long, on stderr: how important, and for whom."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Annotated

import typer

from godwit.core.logs import JsonLines


class LogLevel(StrEnum):
    """How important a line must be to be written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a line is written."""

    TEXT = "text"
    JSON = "json"


LogLevelOption = Annotated[
    LogLevel,
    typer.Option(
        "--log-level",
        metavar="LEVEL",
        help="The least important lines to write: debug (every success too), info, warning or error.",
    ),
]
LogFormatOption = Annotated[LogFormat, typer.Option("--log-format", help="Lines for people, or JSON objects.")]


def write_logs(level: LogLevel, form: LogFormat) -> None:
    """Send log lines to stderr, unless the application has its own logging; the level holds for Godwit's own lines."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s")
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("godwit").setLevel(level.value.upper())
