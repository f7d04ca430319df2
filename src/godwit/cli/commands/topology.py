"""`godwit declare` and `godwit group`: queues with their groups, made and removed."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from godwit.cli.args.actor import actor_name
from godwit.cli.args.command_group import add_group
from godwit.cli.args.confirmation import confirm
from godwit.cli.args.connection import open_broker, settings_for
from godwit.cli.args.options import Actor, Json, Queue, Url
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, remarks
from godwit.cli.shown.quantities import count_text
from godwit.core.errors import GroupNotFound, QueueNotFound, listed
from godwit.core.names import GroupName, QueueName

DECLARE_EXAMPLES = """Examples:

\b
  godwit declare orders
  godwit declare orders --group billing --group stock
"""
GROUP_EXAMPLES = """Example:

\b
  godwit group remove orders stock --yes
"""


def declare(
    queue: Queue,
    groups: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", metavar="NAME", help="A group of it; repeatable.", show_default="configured"),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Create a queue (and a SQLite file) with its groups, or add groups to it.

    Each group gets its own copy of what is published from then on. Settings are those of godwit.toml, if it has the
    queue.
    """

    async def run() -> Exit:
        from godwit.manager import MessageQueueManager

        async with MessageQueueManager.from_settings(settings_for(url)) as manager:
            await manager.declare(queue, *(groups or ()))
            stats = {one.name: one for one in await manager.broker.stats()}
        names = sorted(group.name for group in stats[queue].groups)
        if as_json:
            print_json({"queue": queue, "groups": names})
        else:
            remarks().print(f"{queue!r} has the group{'s' if len(names) > 1 else ''} {listed(tuple(names))}.")
        return Exit.OK

    return asyncio.run(run())


def remove(
    queue: Queue,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    actor: Actor = None,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Remove a group with all that waits for it and its dead letters."""

    async def run() -> Exit:
        async with open_broker(url) as broker:
            stats = {one.name: one for one in await broker.stats()}
            if queue not in stats:
                raise QueueNotFound(queue, tuple(sorted(stats)))
            found = {one.name: one for one in stats[queue].groups}
            if group not in found:
                raise GroupNotFound(queue, group, tuple(sorted(found)))
            left = found[group].depth
            confirm(f"Removing group {group!r} of {queue!r} with {count_text(left, 'message')}", yes=yes)
            await broker.remove(QueueName(queue), GroupName(group), actor=actor_name(actor))
        if as_json:
            print_json({"queue": queue, "group": group, "removed": left})
        else:
            remarks().print(f"Group {group!r} of {queue!r} is removed with {count_text(left, 'message')}.")
        return Exit.OK

    return asyncio.run(run())


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("declare", epilog=DECLARE_EXAMPLES)(declare)
    group = add_group(app, "group", help="Consumer groups of queues.", epilog=GROUP_EXAMPLES)
    group.command("remove", epilog=GROUP_EXAMPLES)(remove)
