"""`godwit schedule load` and `godwit schedule campaign`: many messages at once, and cancelling them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from godwit.cli.args.confirmation import Yes, confirm
from godwit.cli.args.connection import manager_for
from godwit.cli.args.options import Json, Store, Url
from godwit.cli.args.values import Misuse, whole
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, remarks, results
from godwit.core.errors import QueueNotFound
from godwit.core.messages.message import Message
from godwit.manager import MessageQueueManager
from godwit.runtime.scheduler.campaigns import Loaded, rows_of

LOAD_EXAMPLES: Final = """Examples:

\b
  godwit schedule load spring birthdays.jsonl --queue mail --type birthday
  generate-rows | godwit schedule load spring - --queue mail
"""
CAMPAIGN_EXAMPLES: Final = """Examples:

\b
  godwit schedule campaign spring
  godwit schedule campaign spring --cancel --yes
"""

Name = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="The campaign's name.", show_default=False)]


def load(
    campaign: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Lines of JSON; - is stdin.", show_default=False)],
    queue: Annotated[str, typer.Option("--queue", metavar="NAME", help="Where the messages go.")],
    type: Annotated[str, typer.Option("--type", "-t", metavar="NAME", help="What the messages are.")] = "message",
    priority: Annotated[
        int, typer.Option("--priority", "-p", parser=whole(0, 100), metavar="0..100", help="The higher the sooner.")
    ] = 50,
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """Schedule each line of a file: {"key": ..., "deliver_at": ..., "payload": ...}.

    A line is known by its campaign and key, so that loading a file again adds only what is missing. Lines may also
    have a type, priority, attributes and ordering_key.
    """
    template = Message(queue=queue, type=type, priority=priority)

    async def run() -> Exit:
        async with manager_for(url, store) as mq:
            await check_declared(mq, queue)
            loaded = await _load(mq, campaign, file, template, quiet=as_json)
        if as_json:
            print_json(loaded)
        else:
            remarks().print(f"{loaded.read:,} read, {loaded.added:,} scheduled.")
        return Exit.OK if loaded.added else Exit.EMPTY

    return asyncio.run(run())


async def _load(mq: MessageQueueManager, campaign: str, file: Path, template: Message, *, quiet: bool) -> Loaded:
    """Load a file with a bar that shows how much of it has been read."""
    console = remarks()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    lines, size = _open(file)
    with lines, Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(campaign, total=size)
        read = 0

        def counted() -> Iterator[bytes]:
            nonlocal read
            for line in lines:
                read += len(line)
                yield line

        rows = rows_of(counted(), template, source=str(file))
        return await mq.scheduler.schedule_many(campaign, rows, progress=lambda *_: bar.update(task, completed=read))


def _open(file: Path) -> tuple[BinaryIO, int | None]:
    if str(file) == "-":
        return sys.stdin.buffer, None
    try:
        return file.open("rb"), file.stat().st_size
    except OSError as error:
        raise Misuse(f"{str(file)!r} cannot be read: {error.strerror}", "Name a readable file.") from None


def campaign(
    name: Name,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel all of it that has not been delivered.")] = False,
    yes: Yes = False,
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """Show how a campaign stands, or cancel it as a whole."""

    async def run() -> Exit:
        async with manager_for(url, store) as mq:
            if cancel:
                confirm(f"Cancelling campaign {name!r}", yes=yes)
                count = await mq.scheduler.cancel_campaign(name)
                if as_json:
                    print_json({"cancelled": count})
                else:
                    remarks().print(f"{count:,} messages cancelled.")
                return Exit.OK if count else Exit.EMPTY
            state = await mq.scheduler.campaign(name)
        if as_json:
            print_json(state)
        else:
            text = f"{state.name}: {state.status}, {state.planned:,} planned, {state.waiting:,} waiting"
            results().print(f"{text}, {state.cancelled:,} cancelled")
        return Exit.OK

    return asyncio.run(run())


async def check_declared(mq: MessageQueueManager, queue: str) -> None:
    """Refuse a queue that does not exist: its messages would wait for ever."""
    known = tuple(stats.name for stats in await mq.broker.stats())
    if queue not in known:
        raise QueueNotFound(queue, known)


def register_bulk(part: typer.Typer) -> None:
    """Add the commands."""
    part.command(epilog=LOAD_EXAMPLES)(load)
    part.command(epilog=CAMPAIGN_EXAMPLES)(campaign)
