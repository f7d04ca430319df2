"""`godwit pipeline`: its commands put together."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import typer

from godwit.cli.args.command_group import add_group

EXAMPLES: Final = """Examples:

\b
  godwit pipeline run --once
  godwit pipeline analytics --once --json
  godwit pipeline status
"""
COMMANDS: Final = (
    "godwit.cli.pipelines.run",
    "godwit.cli.pipelines.audit",
    "godwit.cli.pipelines.report",
    "godwit.cli.pipelines.plan",
    "godwit.cli.pipelines.replay",
    "godwit.cli.pipelines.sql",
    "godwit.cli.pipelines.status",
    "godwit.cli.pipelines.forget",
)
"""Modules with a `register`, in the order of the help."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    part = add_group(
        app, "pipeline", help="Turn the journal into analytics, a lake, audits and reports.", epilog=EXAMPLES
    )
    for module in COMMANDS:
        import_module(module).register(part)
