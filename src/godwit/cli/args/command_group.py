"""Commands that have subcommands: `godwit dlq list`."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup


class DefaultToShow(TyperGroup):
    """A group that passes an unknown word to `show`: `godwit message ID` is `godwit message show ID`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the subcommand that the words name."""
        known = args[0] in self.commands or args[0].startswith("-")
        return super().resolve_command(ctx, args if known else ["show", *args])


def add_group(
    app: typer.Typer, name: str, *, help: str, epilog: str, cls: type[TyperGroup] | None = None
) -> typer.Typer:
    """Add a command with subcommands; without one of them it shows its help."""
    part = typer.Typer(rich_markup_mode=None, cls=cls)

    @part.callback(invoke_without_command=True, help=help, epilog=epilog)
    def top(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    app.add_typer(part, name=name)
    return part
