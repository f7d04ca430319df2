"""`godwit backup`: a consistent copy of a SQLite broker's file while it is in use."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from godwit.cli.args.connection import check_exists, settings_for, sqlite_file
from godwit.cli.args.options import Json, Url
from godwit.cli.args.values import Misuse
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, remarks
from godwit.cli.shown.quantities import duration_text, size_text
from godwit.config import without_password

EXAMPLES = """Examples:

\b
  godwit backup /var/backups/godwit-monday.db
  godwit backup latest.db --force --url sqlite:////var/lib/app/godwit.db
"""


def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="Where the copy goes.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Replace FILE when it exists.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Copy the broker's SQLite file while others use it.

    The copy is the file as of one moment, complete or not there at all; open it like any other with --url.
    """
    url = settings_for(url).broker_url
    source = sqlite_file(url)
    if source is None:
        raise Misuse(
            f"{without_password(url)!r} is not a SQLite file", "Back other brokers up with the tools of their servers."
        )
    check_exists(url)
    if target.exists() and not force:
        raise Misuse(f"{str(target)!r} exists", "Name another file, or replace it with --force.")
    from godwit.brokers.sqlite import backup as copy

    began = time.monotonic()
    copy(source, target)
    written = target.stat().st_size
    if as_json:
        print_json({"source": str(source.absolute()), "target": str(target.absolute()), "bytes": written})
    else:
        took = duration_text(timedelta(seconds=time.monotonic() - began))
        remarks().print(f"{source} is saved in {target}: {size_text(written)} in {took}.", soft_wrap=True)
    return Exit.OK


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(backup)
