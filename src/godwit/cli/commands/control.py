"""`godwit pause`, `resume`, `drain` and `purge`: hold queues back, release them, empty them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Final

import typer

from godwit.admin.control import DRAINING, PAUSED, Holds, QueueControl
from godwit.brokers.contract import NO_WAIT, Broker, QueueStats
from godwit.cli.args.actor import actor_name
from godwit.cli.args.confirmation import Yes, confirm
from godwit.cli.args.connection import open_broker
from godwit.cli.args.options import Actor, Json, Queue, Url
from godwit.cli.args.values import duration
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, remarks, visible
from godwit.cli.shown.quantities import count_text

OneGroup = Annotated[
    str | None, typer.Option("--group", "-g", metavar="NAME", help="Only this group.", show_default="the whole queue")
]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; shown to those who wonder.")]

RESUMED: Final = "resumed"
PAUSE_EXAMPLES: Final = """Examples:

\b
  godwit pause orders --reason 'the bank is down'
  godwit pause orders --group billing
"""
RESUME_EXAMPLES: Final = """Examples:

\b
  godwit resume orders
  godwit resume orders --group billing
"""
DRAIN_EXAMPLES: Final = """Example, before a migration:

\b
  godwit drain orders --wait 10m && ./migrate && godwit resume orders
"""
PURGE_EXAMPLES: Final = """Examples:

\b
  godwit purge orders
  godwit purge orders --group billing --yes
"""


def pause(
    queue: Queue,
    group: OneGroup = None,
    reason: Reason = None,
    actor: Actor = None,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Let no worker pull from a queue, or for one group of it.

    Running workers obey within two seconds; what they are handling is finished. Publishing goes on.
    """

    async def run() -> Exit:
        async with open_broker(url) as broker:
            control = _control(broker, actor)
            changed = await control.pause(queue, group, reason=reason)
            _print_outcome(PAUSED, queue, group, changed, await control.holds(), as_json=as_json)
        return Exit.OK

    return asyncio.run(run())


def resume(
    queue: Queue,
    group: OneGroup = None,
    actor: Actor = None,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Lift the pause and the drain of a queue, or the pause of one group.

    Groups that were paused by themselves stay paused until they are resumed by themselves.
    """

    async def run() -> Exit:
        async with open_broker(url) as broker:
            control = _control(broker, actor)
            changed = await control.resume(queue, group)
            holds = await control.holds()
            _print_outcome(RESUMED, queue, group, changed, holds, as_json=as_json)
            if group is None and not as_json:
                _print_paused_groups(await broker.stats(), queue, holds)
        return Exit.OK

    return asyncio.run(run())


def drain(
    queue: Queue,
    wait: Annotated[
        timedelta,
        typer.Option(parser=duration, metavar="DURATION", help="Wait so long for the last.", show_default="0s"),
    ] = NO_WAIT,
    reason: Reason = None,
    actor: Actor = None,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Refuse publishes to a queue, so that its consumers empty it.

    Producers refuse messages for it within a second (QueueDraining). With --wait the command returns as soon as the
    queue is empty, with exit code 5 when it is not by then. `godwit resume` opens the queue again.
    """

    async def run() -> Exit:
        async with open_broker(url) as broker:
            control = _control(broker, actor)
            changed = await control.drain(queue, reason=reason)
            left = await control.wait_until_empty(queue, patience=wait)
            _print_outcome(DRAINING, queue, None, changed, await control.holds(), as_json=as_json, left=left)
        return Exit.TRY_LATER if left and wait else Exit.OK

    return asyncio.run(run())


def purge(
    queue: Queue, group: OneGroup = None, yes: Yes = False, actor: Actor = None, url: Url = None, as_json: Json = False
) -> Exit:
    """Delete everything that waits in a queue, or for one group of it.

    What workers hold and dead letters stay (see `godwit dlq discard`).
    """

    async def run() -> Exit:
        async with open_broker(url) as broker:
            control = _control(broker, actor)
            await control.left(queue)  # a mistyped name is reported before the question
            confirm(f"Deleting everything that waits in {_target(queue, group)}", yes=yes)
            purged = await control.purge(queue, group)
        if as_json:
            print_json({"queue": queue, "group": group, "purged": purged})
        else:
            remarks().print(f"{count_text(purged, 'message')} of {_target(queue, group)} deleted.")
        return Exit.OK

    return asyncio.run(run())


def _control(broker: Broker, actor: str | None) -> QueueControl:
    return QueueControl(broker, by=actor_name(actor))


def _target(queue: str, group: str | None) -> str:
    return f"{queue!r}" if group is None else f"group {group!r} of {queue!r}"


def _print_outcome(
    word: str, queue: str, group: str | None, changed: bool, holds: Holds, *, as_json: bool, left: int | None = None
) -> None:
    if as_json:
        document: dict[str, Any] = {
            "queue": queue,
            "group": group,
            "changed": changed,
            "paused": holds.paused(queue, group) is not None,
            "draining": holds.draining(queue) is not None,
        }
        print_json(document if left is None else {**document, "left": left})
        return
    rest = "" if left is None else f" {count_text(left, 'message')} left."
    remarks().print(f"{_target(queue, group)} {_outcome(word, queue, group, changed, holds)}.{rest}", soft_wrap=True)


def _outcome(word: str, queue: str, group: str | None, changed: bool, holds: Holds) -> str:
    if changed:
        return f"is {word}"
    hold = holds.draining(queue) if word == DRAINING else holds.paused(queue, group)
    if word == RESUMED or hold is None:
        return "was not held back"
    why = f" ({visible(hold.reason)})" if hold.reason else ""
    return f"is {word} since {hold.since:%Y-%m-%d %H:%M:%S} UTC by {visible(hold.by)}{why}"


def _print_paused_groups(stats: Sequence[QueueStats], queue: str, holds: Holds) -> None:
    for group in [group.name for queue_stats in stats if queue_stats.name == queue for group in queue_stats.groups]:
        if holds.paused(queue, group) is not None:
            remarks().print(f"Group {group!r} is still paused: godwit resume {queue} --group {group}", soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=PAUSE_EXAMPLES)(pause)
    app.command(epilog=RESUME_EXAMPLES)(resume)
    app.command(epilog=DRAIN_EXAMPLES)(drain)
    app.command(epilog=PURGE_EXAMPLES)(purge)
