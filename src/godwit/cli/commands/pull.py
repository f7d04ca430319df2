"""`godwit pull`: look at messages, or take them."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from datetime import timedelta
from typing import Annotated, Final

import typer

from godwit.brokers.arguments import MAX_PULL
from godwit.brokers.contract import NO_WAIT, Ack, Delivery, HandBack, Transport
from godwit.cli.args.connection import open_broker
from godwit.cli.args.options import THIRTY_SECONDS, Group, Json, Lease, Queue, Url
from godwit.cli.args.values import Misuse, duration, whole
from godwit.cli.exits import Exit
from godwit.cli.shown.delivery import delivery_document, show_delivery
from godwit.cli.shown.output import print_json, remarks, results
from godwit.cli.shown.quantities import count_text
from godwit.core.names import DEFAULT_GROUP, group_name, queue_name

ACKED: Final = "acked"
KEPT: Final = "kept"
HANDED_BACK: Final = "handed back"

EXAMPLES = """Examples:

\b
  godwit pull orders                       look at the next message
  godwit pull orders --limit 100 --ack     take a hundred
  godwit pull orders --keep --lease 5m     take one and settle it later:
  godwit ack 'ACK_ID'
  godwit pull orders --wait 30s --json | jq .payload
"""


def pull(
    queue: Queue,
    group: Group = DEFAULT_GROUP,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", parser=whole(1, MAX_PULL), help="At most so many.")
    ] = 1,
    wait: Annotated[
        timedelta,
        typer.Option(parser=duration, metavar="DURATION", help="Wait so long for the first.", show_default="0s"),
    ] = NO_WAIT,
    ack: Annotated[bool, typer.Option("--ack", help="Settle them as done once they are printed.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the lease and print the ack ids, for ack and nack.")
    ] = False,
    lease: Lease = THIRTY_SECONDS,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Show the next messages of a queue.

    Afterwards they are handed back, which counts as no attempt, unless --ack or --keep says otherwise. Exit code 1
    when there were none.
    """
    if ack and keep:
        raise Misuse("--ack and --keep exclude each other", "Give one of them.")
    outcome = ACKED if ack else KEPT if keep else HANDED_BACK

    async def run() -> Exit:
        async with open_broker(url) as broker:
            deliveries = await broker.pull(
                queue_name(queue), group_name(group), worker=worker_name(), limit=limit, lease=lease, wait=wait
            )
            if not deliveries:
                if not as_json:
                    remarks().print(f"Nothing is ready in {queue!r} for group {group!r}.")
                return Exit.EMPTY
            return await _print_and_settle(broker, deliveries, outcome, as_json=as_json)

    return asyncio.run(run())


async def _print_and_settle(broker: Transport, deliveries: list[Delivery], outcome: str, *, as_json: bool) -> Exit:
    """Print first, settle afterwards: when the pipe's reader is gone, no unseen message is acked."""
    try:
        _print(deliveries, outcome, as_json=as_json)
    except BaseException:
        await broker.settle([HandBack(delivery.ack_id) for delivery in deliveries])
        raise
    if outcome == KEPT:
        return Exit.OK
    settlement = Ack if outcome == ACKED else HandBack
    refused = await broker.settle([settlement(delivery.ack_id) for delivery in deliveries])
    if not as_json:
        remarks().print(f"{count_text(len(deliveries) - len(refused), 'message')} {outcome}.")
        if refused:
            remarks().print(f"{count_text(len(refused), 'lease')} ran out before that; those messages will come again.")
    return Exit.PARTLY if refused else Exit.OK


def _print(deliveries: list[Delivery], outcome: str, *, as_json: bool) -> None:
    console = results()
    for delivery in deliveries:
        if as_json:
            print_json(delivery_document(delivery, outcome))
        else:
            show_delivery(console, delivery, with_ack_id=outcome == KEPT)
    sys.stdout.flush()


def worker_name() -> str:
    """Return the name of this process in the journal."""
    return f"cli@{socket.gethostname()}:{os.getpid()}"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(pull)
