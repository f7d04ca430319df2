"""`godwit config`: the configuration in force, and where each value came from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from godwit.cli.args.connection import settings_for
from godwit.cli.args.options import Json, Store, Url
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, results, visible
from godwit.config import Described, describe

EXAMPLES = """Examples:

\b
  godwit config
  godwit config --changed
  QUEUE_MAX_RETRIES=5 godwit config --file examples/notifications.toml --json
"""
DEFAULT_ORIGIN: Final = "default"


def config(
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="The file to read.", show_default="godwit.toml if there is one"
        ),
    ] = None,
    url: Url = None,
    store: Store = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not a default.")] = False,
    as_json: Json = False,
) -> Exit:
    """Show the configuration in force and where each value came from.

    Reads the file and the environment, connects to nothing, and never shows a password. A mistake in either is
    reported with its line or variable, and exit code 2.
    """
    rows = describe(settings_for(url, store, file=file))
    if changed:
        rows = [row for row in rows if row.origin != DEFAULT_ORIGIN]
    if as_json:
        print_json([row._asdict() for row in rows])
    else:
        results().print(table(rows))
    return Exit.OK


def table(rows: list[Described]) -> Table:
    """Return the rows as a table."""
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("name", "value", "origin"):
        view.add_column(name, overflow="fold")
    for row in rows:
        view.add_row(*map(visible, row))
    return view


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(config)
