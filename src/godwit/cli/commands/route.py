"""`godwit route`: which queue a message would go to, and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from godwit.cli.args.connection import settings_for
from godwit.cli.args.options import Json
from godwit.cli.args.payload_lines import parse_payload
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, remarks, results, visible
from godwit.core.errors import InvalidMessage, listed
from godwit.core.messages.message import Message
from godwit.core.messages.routing import Router, RoutingStep

EXAMPLES = """Examples:

\b
  godwit route '{"type": "urgent", "priority": 90}'
  godwit route --config examples/notifications.toml '{"type": "bulk"}'
  cat message.json | godwit route - --json | jq -r .queue
"""
_FIELDS: Final = tuple(Message.__struct_fields__)


def route(
    message: Annotated[
        str, typer.Argument(metavar="MESSAGE", help="The message as a JSON object; - is stdin.", show_default=False)
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="The file to read.", show_default="godwit.toml if there is one"
        ),
    ] = None,
    as_json: Json = False,
) -> Exit:
    """Explain which queue a message would go to, step by step.

    Connects to nothing and publishes nothing. Exit code 4 when no step names a queue.
    """
    asked = read(sys.stdin.read() if message == "-" else message)
    settings = settings_for(file=config)
    steps = Router(settings.queues, default_queue=settings.default_queue).explain(asked)
    queue = next((step.queue for step in steps if step.chosen), None)
    declared = queue in {spec.name for spec in settings.queues}
    if as_json:
        print_json({"queue": queue, "declared": declared, "steps": steps})
        return Exit.OK if queue else Exit.NOT_FOUND
    results().print(table(steps))
    if queue is None:
        remarks().print("No queue: give the message one, add a rule, or set default_queue.", soft_wrap=True)
        return Exit.NOT_FOUND
    remarks().print(f"It goes to {queue!r}" + ("." if declared else ", which the configuration does not declare."))
    return Exit.OK


def read(text: str) -> Message:
    """Return the message that a JSON object describes; missing fields have their defaults."""
    fields: Any = parse_payload(text, place="MESSAGE")
    if not isinstance(fields, dict):
        raise InvalidMessage("MESSAGE", "is not a JSON object", 'Write it like {"type": "urgent", "priority": 90}.')
    unknown = next((name for name in fields if name not in _FIELDS), None)
    if unknown is not None:
        raise InvalidMessage(f"field {unknown!r}", "is unknown", f"A message has {listed(_FIELDS[:10])}, ordering_key.")
    try:
        return msgspec.convert(fields, Message)
    except msgspec.ValidationError as error:
        raise InvalidMessage("MESSAGE", f"does not fit ({error})", "Give every field a value of its type.") from None


def table(steps: list[RoutingStep]) -> Table:
    """Return the steps as a table; the arrow marks the choice."""
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("", "step", "queue", "why"):
        view.add_column(name, overflow="fold")
    for step in steps:
        style = "bold green" if step.chosen else "" if step.matched else "dim"
        words = ("->" if step.chosen else "", visible(step.looked_at), step.queue or "", visible(step.why))
        view.add_row(*(Text(word, style) for word in words))
    return view


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(route)
