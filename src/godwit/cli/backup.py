"""`godwit backup`: a consistent copy of a SQLite broker's file while it is in use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from godwit.cli.exits import Exit
from godwit.cli.options import DEFAULT_URL, Json, Url


def backup(
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where the copy goes; must not exist.", show_default=False)
    ],
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> Exit:
    """Copy the broker's SQLite file while it is in use."""
    raise NotImplementedError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example:\n\n\b\n  godwit backup /var/backups/godwit-monday.db\n")(backup)
