"""The status of a message, as text and as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from godwit.core.journal.statuses import MessageStatus


def status_document(status: MessageStatus) -> dict[str, Any]:
    """Return a status as JSON values, with the totals over its groups."""
    document: dict[str, Any] = msgspec.to_builtins(status, builtin_types=(datetime,))
    summed = {"attempts": status.attempts, "last_attempt": status.last_attempt, "next_retry": status.next_retry}
    return {**document, **summed}


def print_status(status: MessageStatus, console: Console) -> None:
    """Print a status as a few lines and a table of its groups."""
    console.print(f"{status.id}  {status.status.value}  ({status.type} in {status.queue}, priority {status.priority})")
    for name, value in (
        ("created", status.created_at),
        ("due", status.scheduled_at),
        ("expires", status.expires_at),
        ("last attempt", status.last_attempt),
        ("next retry", status.next_retry),
        ("done", status.processed_at),
    ):
        if value is not None:
            console.print(f"  {name}: {_time(value)}")
    table = Table()
    for column in ("group", "status", "attempts", "failures", "crashes", "worker", "last attempt", "next retry", "why"):
        table.add_column(column)
    for group in status.groups:
        table.add_row(
            group.group,
            group.status.value,
            str(group.attempts),
            str(group.failures),
            str(group.crashes),
            group.worker or "-",
            _time(group.last_attempt),
            _time(group.next_retry),
            group.error_kind or "-",
        )
    console.print(table)


def _time(instant: datetime | None) -> str:
    return "-" if instant is None else instant.isoformat(timespec="milliseconds")
