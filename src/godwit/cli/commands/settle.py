"""`godwit ack` and `godwit nack`: settle messages that `godwit pull --keep` leased."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer

from godwit.brokers.contract import NO_WAIT, Ack, GiveUp, HandBack, Nack, Settlement
from godwit.cli.args.connection import open_broker
from godwit.cli.args.options import Json, Url
from godwit.cli.args.values import Misuse, duration
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, remarks
from godwit.cli.shown.quantities import count_text
from godwit.core.clock import utc_now
from godwit.core.errors import InvalidAckId
from godwit.core.failures.failure import FailureKind, ProcessingError
from godwit.core.names import AckId

AckIds = Annotated[list[str], typer.Argument(metavar="ACK_ID", help="As printed by pull --keep.", show_default=False)]


def ack(ack_ids: AckIds, url: Url = None, as_json: Json = False) -> Exit:
    """Settle messages as done."""
    return asyncio.run(_settle([Ack(AckId(ack_id)) for ack_id in ack_ids], "acked", url=url, as_json=as_json))


def nack(
    ack_ids: AckIds,
    delay: Annotated[
        timedelta,
        typer.Option(parser=duration, metavar="DURATION", help="Ready again after so long.", show_default="0s"),
    ] = NO_WAIT,
    error: Annotated[
        str | None, typer.Option("--error", metavar="TEXT", help="Why; kept in the message's history.")
    ] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Give the messages up: they become dead letters.")] = False,
    hand_back: Annotated[
        bool, typer.Option("--hand-back", help="Return them at once; this counts as no attempt.")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Refuse messages: to be tried again, given up, or handed back."""
    if dead and hand_back:
        raise Misuse("--dead and --hand-back exclude each other", "Give one of them.")
    why = None if error is None else ProcessingError(message=error, retryable=not dead, timestamp=utc_now())

    def settlement(ack_id: AckId) -> Settlement:
        if dead:
            return GiveUp(ack_id, FailureKind.PERMANENT, why)
        return HandBack(ack_id) if hand_back else Nack(ack_id, delay, why)

    outcome = "given up" if dead else "handed back" if hand_back else "to be tried again"
    return asyncio.run(_settle([settlement(AckId(ack_id)) for ack_id in ack_ids], outcome, url=url, as_json=as_json))


async def _settle(settlements: Sequence[Settlement], outcome: str, *, url: str | None, as_json: bool) -> Exit:
    async with open_broker(url) as broker:
        refused = set(await broker.settle(settlements))
    if len(refused) == len(settlements) == 1:
        raise InvalidAckId(settlements[0].ack_id)
    for settlement in settlements:
        if as_json:
            print_json({"ack_id": settlement.ack_id, "settled": settlement.ack_id not in refused})
        elif settlement.ack_id in refused:
            remarks().print(str(InvalidAckId(settlement.ack_id)), soft_wrap=True)
    settled = len(settlements) - len(refused)
    if not as_json:
        remarks().print(f"{count_text(settled, 'message')} {outcome}.")
    if not refused:
        return Exit.OK
    return Exit.PARTLY if settled else Exit.NOT_FOUND


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog="Example:\n\n\b\n  godwit ack 'orders#0#default#3f9c1a'\n")(ack)
    app.command(epilog="Example:\n\n\b\n  godwit nack 'orders#0#default#3f9c1a' --delay 10m --error 'no stock'\n")(nack)
