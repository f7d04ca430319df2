"""Commands that have commands: `godwit dlq list`."""

from __future__ import annotations

import typer


def nested(app: typer.Typer, name: str, *, help: str, epilog: str) -> typer.Typer:
    """Add a command that has commands; without one of them it shows its help."""
    part = typer.Typer(rich_markup_mode=None)

    @part.callback(invoke_without_command=True, help=help, epilog=epilog)
    def top(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    app.add_typer(part, name=name)
    return part
