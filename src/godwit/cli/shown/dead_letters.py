"""Dead letters and failure patterns, as text and as JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from godwit.admin.dead_letters import Inspection
from godwit.admin.letter_filter import cause_of
from godwit.admin.patterns import FailurePattern
from godwit.brokers.contract import DeadLetter
from godwit.cli.shown.output import visible
from godwit.cli.shown.quantities import duration_text
from godwit.core.clock import from_ms

SHOWN_CHARACTERS: Final = 60
_KIND_STYLE: Final = {"poison": "red", "permanent": "yellow"}


def letter_document(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter as the JSON document of a list: its facts and its cause, without its content."""
    envelope, cause = letter.envelope, cause_of(letter)
    return {
        "letter": letter.id,
        "id": envelope.id,
        "queue": letter.queue,
        "group": letter.group,
        "type": envelope.type,
        "kind": letter.kind,
        "dead_at": from_ms(letter.dead_at_ms),
        "attempt": letter.attempt,
        "failures": letter.failures,
        "crashes": letter.crashes,
        "size": envelope.size,
        "fingerprint": cause.fingerprint,
        "error_type": cause.type,
        "error": cause.message,
    }


def inspection_document(inspection: Inspection) -> dict[str, Any]:
    """Return everything about a letter as one JSON document."""
    letter, message = inspection.letter, inspection.message
    envelope = letter.envelope
    return {
        **letter_document(letter),
        "priority": envelope.priority,
        "ordering_key": envelope.ordering_key,
        "created_at": from_ms(envelope.created_at_ms),
        "expires_at": None if envelope.expires_at_ms is None else from_ms(envelope.expires_at_ms),
        "replay_of": envelope.replay_of,
        "errors": letter.errors,
        "message": message,
        "raw": None if inspection.raw is None else base64.b64encode(inspection.raw).decode(),
    }


def show_letter(console: Console, inspection: Inspection, *, now: datetime) -> None:
    """Print everything about a letter."""
    letter, envelope = inspection.letter, inspection.letter.envelope
    console.print(Text.assemble((envelope.id, "bold"), "  ", (visible(envelope.type), "cyan")), soft_wrap=True)
    facts = [
        ("dead letter", letter.id),
        ("place", f"queue {letter.queue}, group {letter.group}"),
        (
            "died",
            f"{from_ms(letter.dead_at_ms):%Y-%m-%d %H:%M:%S} UTC, {_ago(letter, now)} ago, as {letter.kind.value}",
        ),
        ("because", f"{inspection.cause.message}  [{inspection.cause.type}, pattern {inspection.cause.fingerprint}]"),
        ("counts", f"delivered {letter.attempt}x, failed {letter.failures}x, crashed {letter.crashes}x"),
    ]
    facts += [("replay of", envelope.replay_of)] if envelope.replay_of else []
    facts += [("key", envelope.ordering_key)] if envelope.ordering_key else []
    for name, value in facts:
        console.print(Text.assemble((f"  {name:<12}", "dim"), visible(value)), soft_wrap=True)
    for number, error in enumerate(letter.errors, start=1):
        head = f"  error {number} of {len(letter.errors)}, {error.timestamp:%Y-%m-%d %H:%M:%S} UTC, {error.type.value}"
        console.print(Text(head, "yellow"), soft_wrap=True)
        for line in (error.traceback or error.message).rstrip().splitlines():
            console.print(f"    {visible(line)}", soft_wrap=True)
    if inspection.message is None:
        console.print(Text(f"  not a message: {envelope.size:,} bytes", "yellow"), soft_wrap=True)
        console.print(f"  {visible(repr((inspection.raw or b'')[:1_000]))}", soft_wrap=True)
    else:
        body = msgspec.json.format(msgspec.json.encode(inspection.message)).decode()
        for line in body.splitlines():
            console.print(f"  {visible(line)}", soft_wrap=True)


def letter_table(letters: Iterable[DeadLetter], *, now: datetime) -> Table:
    """Return letters as a table."""
    view = _table("dead letter", "message", "type", "kind", right=("dead for", "tries"), last=("pattern", "error"))
    for letter in letters:
        cause = cause_of(letter)
        view.add_row(
            letter.id,
            letter.envelope.id,
            visible(letter.envelope.type),
            Text(letter.kind.value, _KIND_STYLE.get(letter.kind.value, "")),
            _ago(letter, now),
            str(letter.attempt),
            cause.fingerprint,
            _shorten(cause.message),
        )
    return view


def pattern_table(patterns: Iterable[FailurePattern], *, now: datetime) -> Table:
    """Return failure patterns as a table."""
    view = _table("pattern", right=("letters", "first", "last"), last=("kinds", "where", "error", "sample"))
    for pattern in patterns:
        view.add_row(
            pattern.fingerprint,
            f"{pattern.count:,}",
            f"{duration_text(max(now - pattern.first_seen, timedelta(0)))} ago",
            f"{duration_text(max(now - pattern.last_seen, timedelta(0)))} ago",
            ", ".join(f"{kind.value} {count:,}" for kind, count in pattern.kinds.items()),
            ", ".join(list(pattern.places)[:3]) + (", ..." if len(pattern.places) > 3 else ""),  # noqa: PLR2004
            _shorten(pattern.message),
            pattern.sample,
        )
    return view


def _table(*left: str, right: tuple[str, ...], last: tuple[str, ...]) -> Table:
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in left:
        view.add_column(name, overflow="fold")
    for name in right:
        view.add_column(name, justify="right", no_wrap=True)
    for name in last:
        view.add_column(name, overflow="fold")
    return view


def _ago(letter: DeadLetter, now: datetime) -> str:
    return duration_text(max(now - from_ms(letter.dead_at_ms), timedelta(0)))


def _shorten(text: str) -> str:
    line = visible(text.splitlines()[0] if text.strip() else text)
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[: SHOWN_CHARACTERS - 3]}..."
