"""Options that several commands share, so that one word means one thing everywhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

import typer

from godwit.cli.values import duration

DEFAULT_URL: Final = "sqlite:///godwit.db"

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="GODWIT_URL",
        metavar="URL",
        help="The broker: sqlite:///file.db (relative), sqlite:////var/file.db (absolute), memory://.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts, and nothing else.")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.", show_default=False)]
Group = Annotated[str, typer.Option("--group", "-g", metavar="NAME", help="The group to act for.")]
Lease = Annotated[
    timedelta,
    typer.Option(parser=duration, metavar="DURATION", help="How long the messages are yours.", show_default="30s"),
]
THIRTY_SECONDS: Final = timedelta(seconds=30)
