"""`godwit message`: the status of one message, and discarding one that waits."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from godwit.brokers.urls import connect_for
from godwit.cli.args.actor import actor_name
from godwit.cli.args.command_group import DefaultToShow, add_group
from godwit.cli.args.connection import check_exists, open_broker, settings_for
from godwit.cli.args.options import Actor, Json, Queue, Store, Url
from godwit.cli.exits import Exit
from godwit.cli.shown.message_status import print_status, status_document
from godwit.cli.shown.output import print_json, remarks, results
from godwit.core.errors import NotFoundError, StoreRequired, shown
from godwit.core.names import MessageId, check_message_id, queue_name
from godwit.runtime.effects.status import status_of
from godwit.store.urls import connect as connect_store

EXAMPLES = """Examples:

\b
  godwit message 0197a1c2-7f3e-7a10-b5a4-0c0ffee00001
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


class MessageUnknown(NotFoundError):
    """The store has no message of that id."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        super().__init__(message_id)

    @property
    def fact(self) -> str:
        return f"No message {shown(self.message_id)} is known"

    @property
    def remedy(self) -> str:
        return "It was never published, or so long ago that its history was dropped."


def show(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The message's id.", show_default=False)],
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """Say where a message stands, in all groups of its queue: attempts, last attempt, next retry, how it ended.

    Unrecorded rows of the journal are recorded first. Exit code 4 when no such message is known.
    """
    check_message_id(message_id)

    async def run() -> Exit:
        settings = settings_for(url, store)
        check_exists(settings.broker_url)
        if settings.store_url is None:
            raise StoreRequired("godwit message")
        async with connect_for(settings) as broker, connect_store(settings.store_url) as opened_store:
            status = await status_of(broker, opened_store, message_id)
        if status is None:
            raise MessageUnknown(message_id)
        if as_json:
            print_json(status_document(status))
        else:
            print_status(status, results())
        return Exit.OK

    return asyncio.run(run())


def discard(
    queue: Queue,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The message's id.", show_default=False)],
    actor: Actor = None,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Delete a message that waits, in all groups of its queue.

    Copies that a worker holds or that are dead stay. Exit code 4 when none waits.
    """
    check_message_id(message_id)

    async def run() -> Exit:
        async with open_broker(url) as broker:
            if not await broker.cancel(queue_name(queue), MessageId(message_id), actor=actor_name(actor)):
                raise MessageNotWaiting(queue, message_id)
        if as_json:
            print_json({"queue": queue, "id": message_id, "discarded": True})
        else:
            remarks().print(f"Message {message_id!r} of {queue!r} deleted.", soft_wrap=True)
        return Exit.OK

    return asyncio.run(run())


def register(app: typer.Typer) -> None:
    """Add the commands."""
    help = "Say where a message stands (`godwit message ID`), or discard one that waits."  # noqa: A001
    part = add_group(app, "message", help=help, epilog=EXAMPLES, cls=DefaultToShow)
    part.command(epilog=EXAMPLES)(show)
    part.command(epilog=EXAMPLES)(discard)
