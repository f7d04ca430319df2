"""The question before something is deleted for good."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from godwit.cli.args.values import Misuse

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(what: str, *, yes: bool) -> None:
    """Return when the user, or --yes, agrees; refuse a script without --yes rather than wait for input."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misuse(f"{what} cannot be undone", "Add --yes when that is meant.")
    if not typer.confirm(f"{what}, which cannot be undone. Go on?", err=True):
        raise typer.Abort
