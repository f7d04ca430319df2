"""`godwit message`: one live message."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from godwit.cli.exits import Exit
from godwit.cli.nesting import nested
from godwit.cli.opening import opened
from godwit.cli.options import Json, Queue, Url
from godwit.cli.output import print_json, remarks
from godwit.core.errors import NotFoundError, shown
from godwit.core.names import MessageId, check_message_id, queue_name

EXAMPLES = """Example:

\b
  godwit message discard orders 0197a1c2-7f3e-7a10-b5a4-0c0ffee00001
"""


class MessageNotWaiting(NotFoundError):
    """No copy of the message waits in the queue."""

    def __init__(self, queue: str, message_id: str) -> None:
        self.queue, self.message_id = queue, message_id
        super().__init__(queue, message_id)

    @property
    def fact(self) -> str:
        return f"No message {shown(self.message_id)} waits in queue {shown(self.queue)}"

    @property
    def remedy(self) -> str:
        return "It is done, being handled or dead (godwit dlq list), or it was never there."


def discard(
    queue: Queue,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The message's id.", show_default=False)],
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Delete a message that waits, in all groups of its queue.

    Copies that a worker holds or that are dead stay. Exit code 4 when none waits.
    """
    check_message_id(message_id)

    async def run() -> Exit:
        async with opened(url) as broker:
            if not await broker.cancel(queue_name(queue), MessageId(message_id)):
                raise MessageNotWaiting(queue, message_id)
        if as_json:
            print_json({"queue": queue, "id": message_id, "discarded": True})
        else:
            remarks().print(f"Message {message_id!r} of {queue!r} deleted.", soft_wrap=True)
        return Exit.OK

    return asyncio.run(run())


def register(app: typer.Typer) -> None:
    """Add the commands."""
    part = nested(app, "message", help="Look after one message that is not dead.", epilog=EXAMPLES)
    part.command(epilog=EXAMPLES)(discard)
