"""The commands put together, and the one place where errors become sentences and exit codes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command

from godwit import __version__
from godwit.cli.exits import Exit, exit_of
from godwit.cli.shown.output import print_error
from godwit.core.errors import GodwitError, InvalidSetting

COMMANDS: Final = {
    "publish": "godwit.cli.commands.publish",
    "pull": "godwit.cli.commands.pull",
    "ack": "godwit.cli.commands.settle",
    "nack": "godwit.cli.commands.settle",
    "queues": "godwit.cli.commands.queues",
    "declare": "godwit.cli.commands.topology",
    "group": "godwit.cli.commands.topology",
    "dlq": "godwit.cli.commands.dlq",
    "message": "godwit.cli.commands.message",
    "pause": "godwit.cli.commands.control",
    "resume": "godwit.cli.commands.control",
    "drain": "godwit.cli.commands.control",
    "purge": "godwit.cli.commands.control",
    "route": "godwit.cli.commands.route",
    "worker": "godwit.cli.commands.worker",
    "workers": "godwit.cli.commands.workers",
    "schedule": "godwit.cli.commands.schedules.schedule",
    "scheduler": "godwit.cli.commands.schedules.scheduler",
    "db": "godwit.cli.commands.db",
    "pipeline": "godwit.cli.pipelines.command",
    "config": "godwit.cli.commands.config",
    "backup": "godwit.cli.commands.backup",
    "doctor": "godwit.cli.commands.doctor",
    "demo": "godwit.cli.demo.command",
}
"""The module of each command, in the order of the help. A module is imported when its command is called."""


PACKAGES: Final = {
    "redis": "redis",
    "hiredis": "redis",
    "pamqp": "rabbitmq",
    "asyncpg": "postgres",
    "pyspark": "spark",
    "pyarrow": "spark",
    "pandas": "spark",
    "jsonschema_rs": "jsonschema",
    "opentelemetry": "tracing",
}
"""The extra that installs each optional package."""


class Commands(TyperGroup):
    """The top-level group: runs a command and turns its outcome, or its error, into the exit code."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 # as typer calls it
        """Return all names."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 # as typer calls it
        """Return a command, importing its module; import all for an unknown name, so that a similar one is found."""
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                part = typer.Typer(callback=lambda: None, rich_markup_mode=None)
                import_module(COMMANDS[name]).register(part)
                self.commands |= getattr(get_command(part), "commands")  # noqa: B009 # typer's group type is private
        return self.commands.get(cmd_name)

    def main(  # type: ignore[override] # typer's other switches are decided here
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **_: Any
    ) -> NoReturn:
        """Run a command and exit; print a traceback only with --debug."""
        words = list(sys.argv[1:] if args is None else args)
        own = words[: words.index("--")] if "--" in words else words
        debug, as_json = "--debug" in own, "--json" in own
        if debug:
            words.remove("--debug")
        try:
            outcome = super().main(args=words, prog_name=prog_name, standalone_mode=False)
        except Exception as error:  # noqa: BLE001 # the last one to see it
            if debug:
                traceback.print_exc()
            outcome = report_error(_not_utf8(words, error) or error, as_json=as_json)
        sys.exit(int(outcome or 0))


def _not_utf8(words: Sequence[str], error: Exception) -> InvalidSetting | None:
    """Return what is wrong with an argument of bytes that are no UTF-8, if that is why an error was raised."""
    word = next((word for word in words if any("\ud800" <= character <= "\udfff" for character in word)), None)
    if word is None or not isinstance(error, UnicodeError):
        return None
    shown = word.encode("utf-8", "backslashreplace").decode()
    return InvalidSetting("argument", shown, "text in UTF-8 (other bytes only in the name of a file)")


def report_error(error: Exception, *, as_json: bool) -> Exit:
    """Print an error and its remedy; return the exit code."""
    name = type(error).__name__
    match error:
        case GodwitError():
            code, fact, remedy = exit_of(error), error.fact, error.remedy
        case _ if (say := getattr(error, "format_message", None)) is not None:
            # A usage error: of click in older versions of typer, of typer itself in newer ones.
            context = getattr(error, "ctx", None)
            code, fact = Exit.BAD_INPUT, say()
            remedy = f"See {context.command_path if context else 'godwit'} --help"
        case ModuleNotFoundError() if (missing := (error.name or "").partition(".")[0]) not in {"", "godwit"}:
            code, fact = Exit.UNAVAILABLE, f"This command needs the package {missing!r}, which is not installed"
            extra = PACKAGES.get(missing)
            remedy = f"Install godwit[{extra}]." if extra else f"Install it: pip install {missing}"
        case typer.Abort():
            code, fact, remedy = Exit.INTERRUPTED, "Interrupted", ""
        case _:
            code, fact = Exit.BUG, f"Unexpected {name}: {error}"
            remedy = "This is a bug in Godwit; run the command again with --debug and report what it prints."
    print_error(name, fact, remedy, code, as_json=as_json)
    return code


app = typer.Typer(
    cls=Commands,
    help="Manage Godwit's queues from a terminal or a script.",
    epilog="Every command has --help with an example. Exit codes are listed in docs/cli.md.",
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)


def print_version(asked: bool) -> None:
    """Print the version and leave."""
    if asked:
        typer.echo(f"godwit {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def top(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    _debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere on the line.")
    ] = False,
) -> None:
    """Show the help when no command is named."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
