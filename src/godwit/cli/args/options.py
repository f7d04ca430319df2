"""Options that several commands share, so that a word has one meaning everywhere."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from godwit.cli.args.values import duration

DEFAULT_FILE: Final = Path("godwit.toml")
"""Read by every command when the working folder has it."""

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The broker: sqlite:///file.db (relative), sqlite:////var/file.db (absolute), redis://, amqp://.",
        show_default="GODWIT_URL and others, else sqlite:///godwit.db",
    ),
]
"""For `godwit.cli.args.connection`, which falls back on the environment and the file."""
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The state: sqlite:///file.db or postgresql://.",
        show_default="GODWIT_STORE_URL, else the file of a SQLite broker",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts, and nothing else.")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.", show_default=False)]
Group = Annotated[str, typer.Option("--group", "-g", metavar="NAME", help="The group to act for.")]
Lease = Annotated[
    timedelta,
    typer.Option(parser=duration, metavar="DURATION", help="How long the messages are yours.", show_default="30s"),
]
Actor = Annotated[
    str | None,
    typer.Option("--actor", metavar="NAME", help="Who does it, for the journal.", show_default="your user name"),
]
"""For `godwit.cli.args.actor.actor_name`."""
THIRTY_SECONDS: Final = timedelta(seconds=30)
