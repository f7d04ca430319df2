"""Dead letters and failure patterns as people and scripts see them."""

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
from godwit.admin.filtering import cause_of
from godwit.admin.patterns import FailurePattern
from godwit.brokers.contract import DeadLetter
from godwit.cli.shown.output import visible
from godwit.cli.shown.quantities import duration_text
from godwit.core.clock import from_ms

SHOWN_CHARACTERS: Final = 60
_KIND_STYLE: Final = {"poison": "red", "permanent": "yellow"}


def letter_document(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter as the JSON document of a list: what it is and what it died of, without its content."""
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


def inspection_document(found: Inspection) -> dict[str, Any]:
    """Return everything about a letter as one JSON document."""
    letter, message = found.letter, found.message
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
        "raw": None if found.raw is None else base64.b64encode(found.raw).decode(),
    }


def show_letter(console: Console, found: Inspection, *, now: datetime) -> None:
    """Print everything about a letter for a person."""
    letter, envelope = found.letter, found.letter.envelope
    console.print(Text.assemble((envelope.id, "bold"), "  ", (visible(envelope.type), "cyan")), soft_wrap=True)
    facts = [
        ("dead letter", letter.id),
        ("place", f"queue {letter.queue}, group {letter.group}"),
        (
            "died",
            f"{from_ms(letter.dead_at_ms):%Y-%m-%d %H:%M:%S} UTC, {_ago(letter, now)} ago, as {letter.kind.value}",
        ),
        ("because", f"{found.cause.message}  [{found.cause.type}, pattern {found.cause.fingerprint}]"),
        ("counts", f"delivered {letter.attempt}x, failed {letter.failures}x, crashed {letter.crashes}x"),
    ]
    facts += [("replay of", envelope.replay_of)] if envelope.replay_of else []
    facts += [("key", envelope.ordering_key)] if envelope.ordering_key else []
    for name, value in facts:
        console.print(Text.assemble((f"  {name:<12}", "dim"), visible(value)), soft_wrap=True)
    for place, error in enumerate(letter.errors, start=1):
        head = f"  error {place} of {len(letter.errors)}, {error.timestamp:%Y-%m-%d %H:%M:%S} UTC, {error.type.value}"
        console.print(Text(head, "yellow"), soft_wrap=True)
        for line in (error.traceback or error.message).rstrip().splitlines():
            console.print(f"    {visible(line)}", soft_wrap=True)
    if found.message is None:
        console.print(Text(f"  not a message: {envelope.size:,} bytes", "yellow"), soft_wrap=True)
        console.print(f"  {visible(repr((found.raw or b'')[:1_000]))}", soft_wrap=True)
    else:
        body = msgspec.json.format(msgspec.json.encode(found.message)).decode()
        for line in body.splitlines():
            console.print(f"  {visible(line)}", soft_wrap=True)


def letter_table(letters: Iterable[DeadLetter], *, now: datetime) -> Table:
    """Return a list of letters as a person reads it."""
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
    """Return failure patterns as a person reads them."""
    view = _table("pattern", right=("letters", "first", "last"), last=("kinds", "where", "error", "sample"))
    for one in patterns:
        view.add_row(
            one.fingerprint,
            f"{one.count:,}",
            f"{duration_text(max(now - one.first_seen, timedelta(0)))} ago",
            f"{duration_text(max(now - one.last_seen, timedelta(0)))} ago",
            ", ".join(f"{kind.value} {count:,}" for kind, count in one.kinds.items()),
            ", ".join(list(one.places)[:3]) + (", ..." if len(one.places) > 3 else ""),  # noqa: PLR2004
            _shorten(one.message),
            one.sample,
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
