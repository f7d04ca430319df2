"""`godwit workers`: who serves which queues, and how each does."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from godwit.cli.args.connection import open_broker
from godwit.cli.args.options import Json, Url
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, remarks, results, visible
from godwit.core.clock import SYSTEM_CLOCK
from godwit.runtime.worker.heartbeat import ConsumerInstance, InstanceStatus, instances

EXAMPLES = """Examples:

\b
  godwit workers
  godwit workers orders --json | jq -r 'select(.status == "failed") | .id'
"""
_COLORS = {InstanceStatus.ACTIVE: "green", InstanceStatus.INACTIVE: "dim", InstanceStatus.FAILED: "red"}


def workers(
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="Only workers of this queue.", show_default=False)
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Show the workers that reported within the last hour, one line for each group they serve.

    `failed` means that three heartbeats are missing, or that a health check fails. Exit code 1 when there is none.
    """

    async def run() -> list[ConsumerInstance]:
        async with open_broker(url) as broker:
            return await instances(broker.shared, SYSTEM_CLOCK, queue)

    found = sorted(asyncio.run(run()), key=lambda one: (one.queue, one.group, one.id))
    if as_json:
        for one in found:
            print_json(one)
    elif found:
        results().print(_table(found))
    else:
        remarks().print("No worker reported within the last hour. Start one: godwit worker MODULE:NAME")
    return Exit.OK if found else Exit.EMPTY


def _table(found: list[ConsumerInstance]) -> Table:
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("queue", "group", "worker"):
        view.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in ("slots", "processed", "failed", "average", "heard"):
        view.add_column(name, justify="right", no_wrap=True)
    view.add_column("status", overflow="fold")
    now_ms = SYSTEM_CLOCK.now_ms()
    for one in found:
        status = Text(one.status.value, _COLORS[one.status])
        if one.detail and one.detail != one.status:
            status.append(f" ({visible(one.detail)})")
        view.add_row(
            one.queue,
            one.group,
            visible(one.id),
            f"{one.concurrency:,}",
            f"{one.processed_count:,}",
            f"{one.error_count:,}",
            f"{one.average_processing_time_ms:,.0f} ms",
            f"{max(0, now_ms - one.last_heartbeat_ms) / 1_000:,.0f} s ago",
            status,
        )
    return view


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("workers", epilog=EXAMPLES)(workers)
