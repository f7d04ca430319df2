"""The options that select dead letters, the same for every command that takes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Final

import typer

from godwit.admin.letter_filter import LetterFilter
from godwit.cli.args.values import Misuse, duration, instant
from godwit.cli.exits import Exit
from godwit.core.failures.failure import FailureKind
from godwit.core.names import MessageId, check_message_id, group_name

_LAST: Final = ("url", "as_json")


def letter_filter(
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="NAME", help="Only those of this group.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", "-k", metavar="KIND", help="Only transient, permanent, poison or expired ones."),
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option("--fingerprint", metavar="HEX", help="Only those of this failure pattern.")
    ] = None,
    type: Annotated[
        str | None, typer.Option("--type", "-t", metavar="NAME", help="Only messages of this type.")
    ] = None,
    message_id: Annotated[str | None, typer.Option("--message-id", metavar="ID", help="Only this message.")] = None,
    older_than: Annotated[
        timedelta | None, typer.Option(parser=duration, metavar="DURATION", help="Only those dead for longer.")
    ] = None,
    newer_than: Annotated[
        timedelta | None, typer.Option(parser=duration, metavar="DURATION", help="Only those dead for less long.")
    ] = None,
    died_before: Annotated[
        datetime | None, typer.Option(parser=instant, metavar="INSTANT", help="Only those dead by then (ISO 8601).")
    ] = None,
) -> LetterFilter:
    """Return the filter that the options describe."""
    if message_id is not None:
        check_message_id(message_id)
    return LetterFilter(
        group=group_name(group) if group is not None else None,
        kind=_kind(kind) if kind is not None else None,
        fingerprint=fingerprint,
        type=type,
        message_id=MessageId(message_id) if message_id is not None else None,
        older_than=older_than,
        newer_than=newer_than,
        died_before=died_before,
    )


def _kind(text: str) -> FailureKind:
    try:
        return FailureKind(text)
    except ValueError:
        raise Misuse(f"{text!r} is not a kind of failure", f"Use one of {', '.join(FailureKind)}.") from None


def with_filter(command: Callable[..., Exit]) -> Callable[..., Exit]:
    """Add the options that select dead letters to a command; it receives the filter as `which`."""
    own, options = signature(command, eval_str=True).parameters, signature(letter_filter, eval_str=True).parameters
    first = [parameter for name, parameter in own.items() if name not in ("which", *_LAST)]
    ordered = [*first, *options.values(), *(own[name] for name in _LAST)]

    @wraps(command)
    def run(**given: Any) -> Exit:
        choice = {name: given.pop(name) for name in options}
        return command(**given, which=letter_filter(**choice))

    # Typer reads both to make the command line.
    run.__signature__ = Signature(  # type: ignore[attr-defined]
        [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in ordered], return_annotation=Exit
    )
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered} | {"return": Exit}
    return run
