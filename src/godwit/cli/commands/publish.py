"""`godwit publish`: one message, or a file of them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from godwit.admin.control import check_not_draining
from godwit.brokers.contract import Broker, Receipt
from godwit.cli.args.connection import open_broker, settings_for
from godwit.cli.args.options import Json, Queue, Url
from godwit.cli.args.payload_lines import PayloadLines, lines_of_file, lines_of_stdin, parse_payload
from godwit.cli.args.values import Misuse, duration, duration_or_instant, instant, pairs, whole
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, remarks
from godwit.cli.shown.quantities import count_text, duration_text
from godwit.core.clock import utc_now
from godwit.core.errors import GodwitError, InvalidArgumentError, InvalidMessage, PartialPublish, QueueNotFound
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message, Routing, Scheduling
from godwit.core.names import DEFAULT_GROUP, GroupName, MessageId, QueueName, new_message_id, queue_name

BATCH: Final = 400
SHOWN_IDS: Final = 20
"""More ids than this are not printed to a terminal, only into a pipe or file."""

EXAMPLES = """Examples:

\b
  godwit publish orders '{"id": 7}' --type order.created --declare
  godwit publish orders --file orders.ndjson --priority 80
  generate | godwit publish orders --json | jq -r .id
  godwit publish mails '"good morning"' --at 2030-01-31T09:00:00+01:00
"""


class PublishStopped(PartialPublish):
    """A file was published in part; the remedy says how to continue."""

    def __init__(self, accepted: tuple[str, ...], cause: str, line: int, named: bool) -> None:
        super().__init__(accepted, cause)
        self.line, self.named = line, named
        self.args = (accepted, cause, line, named)

    @property
    def remedy(self) -> str:
        if self.named:
            return "Run the same command again: those accepted are recognised by their ids."
        return f"Go on from line {self.line:,}: tail -n +{self.line} FILE | godwit publish ..."


class MessageTemplate:
    """The fields that all messages of one command share."""

    def __init__(self, queue: QueueName, id: str | None, **fields: Any) -> None:
        self.queue, self.id, self._fields = queue, id, fields

    def single(self, content: Any) -> Message:
        """Return the one message of a command."""
        return Message(id=MessageId(self.id) if self.id else new_message_id(), payload=content, **self._shared())

    def line(self, number: int, content: Any) -> Message:
        """Return the message of a line; with --id its id contains the line's number."""
        name = MessageId(f"{self.id}-{number}") if self.id else new_message_id()
        return Message(id=name, payload=content, **self._shared())

    def _shared(self) -> dict[str, Any]:
        return {"queue": self.queue, **self._fields}


def publish(  # the signature is the command line
    queue: Queue,
    content: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="The payload, as JSON.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Publish each line of FILE, a JSON payload each; - is stdin."
        ),
    ] = None,
    type: Annotated[str, typer.Option("--type", "-t", metavar="NAME", help="What the message is.")] = "message",
    priority: Annotated[
        int, typer.Option("--priority", "-p", parser=whole(0, 100), metavar="0..100", help="The higher the sooner.")
    ] = 50,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT", help="Ordering key: those that share it stay in order.")
    ] = None,
    attribute: Annotated[
        list[str] | None, typer.Option("--attribute", "-a", metavar="KEY=VALUE", help="An attribute; repeatable.")
    ] = None,
    delay: Annotated[
        timedelta | None, typer.Option(parser=duration, metavar="DURATION", help="Deliver it so much later.")
    ] = None,
    at: Annotated[
        datetime | None, typer.Option(parser=instant, metavar="INSTANT", help="Deliver it then (ISO 8601 with zone).")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            parser=duration_or_instant, metavar="DURATION|INSTANT", help="Never deliver it after that; it is dead then."
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="Its id, so that repeating is safe; with --file ID-1, ID-2, ... by line."
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="NAME", help="Only for this group, instead of all.")
    ] = None,
    declare: Annotated[
        bool, typer.Option("--declare", help="Create the queue (and the file) if it does not exist.")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Publish a message, or a file of them, and print the ids.

    The payload is an argument, or one JSON value per line of --file or stdin. One bad line refuses the whole file.
    """
    now = utc_now()
    if delay is not None and at is not None:
        raise Misuse("--delay and --at both say when", "Give one of them.")
    due = now + delay if delay is not None else at
    end: Any = expires  # typer wants one plain type; the parser returns either of two
    form = MessageTemplate(
        queue_name(queue),
        id,
        type=type,
        priority=priority,
        ordering_key=key,
        attributes=pairs(attribute or []),
        routing=Routing(consumer_group=GroupName(group) if group else None),
        scheduling=Scheduling(deliver_at=due) if due is not None else None,
        expires_at=now + end if isinstance(end, timedelta) else end,
    )
    work = PublishRun(form, url=url, declare=declare, as_json=as_json)
    if content is not None:
        if file is not None:
            raise Misuse("PAYLOAD and --file both say what to publish", "Give one of them.")
        return asyncio.run(work.one(parse_payload(content, place="PAYLOAD")))
    with _lines(file) as lines:
        return asyncio.run(work.many(lines))


def _lines(file: Path | None) -> PayloadLines:
    if file is not None and str(file) != "-":
        try:
            return lines_of_file(file)
        except OSError as error:
            raise Misuse(f"{str(file)!r} cannot be read: {error.strerror}", "Name a readable file.") from None
    if file is None and sys.stdin.isatty():
        raise Misuse("There is nothing to publish", "Give a PAYLOAD, or --file, or pipe lines in.")
    return lines_of_stdin()


class PublishRun:
    """A run of the command."""

    def __init__(self, form: MessageTemplate, *, url: str | None, declare: bool, as_json: bool) -> None:
        self._form, self._url, self._declare, self._as_json = form, url, declare, as_json
        self._accepted: list[MessageId] = []
        self._duplicates = 0
        self._began = time.monotonic()

    async def one(self, content: Any) -> Exit:
        """Publish a single payload."""
        envelope = seal(self._form.single(content))
        async with open_broker(self._url, create=self._declare) as broker:
            await self._ensure_queue(broker)
            self._note(await broker.publish([envelope]), show_ids=True)
        self._sum_up()
        return Exit.OK

    async def many(self, lines: PayloadLines) -> Exit:
        """Check every line, then publish them in batches."""
        total = self._check(lines)
        show_ids = total <= SHOWN_IDS or not sys.stdout.isatty()
        async with open_broker(self._url, create=self._declare) as broker:
            await self._ensure_queue(broker)
            with self._progress() as progress:
                task = progress.add_task("publishing", total=total)
                for batch in batches(lines, BATCH):
                    await self._publish(broker, batch, show_ids=show_ids)
                    progress.advance(task, len(batch))
        self._sum_up()
        return Exit.OK

    def _check(self, lines: PayloadLines) -> int:
        total = 0
        for number, content in lines:
            try:
                seal(self._form.line(number, content))
            except InvalidMessage as error:
                raise InvalidMessage(f"line {number}: {error.field}", error.problem, error.remedy) from error
            total += 1
        return total

    async def _ensure_queue(self, broker: Broker) -> None:
        known = tuple(stats.name for stats in await broker.stats())
        if self._form.queue in known:
            await check_not_draining(broker.shared, self._form.queue)
            return
        if not self._declare:
            raise UndeclaredQueue(self._form.queue, known)
        queue = settings_for(self._url).queue(self._form.queue)
        await broker.declare(queue.spec, [group.spec for group in queue.groups])
        if not self._as_json and [group.name for group in queue.groups] == [DEFAULT_GROUP]:
            new = f"Queue {queue.name!r} is new and has the group {DEFAULT_GROUP!r}."
            later = "Groups that are declared later do not get what is published before"
            remarks().print(f"{new} {later}: name them with godwit declare {queue.name} --group NAME.", soft_wrap=True)

    async def _publish(self, broker: Broker, batch: list[tuple[int, Any]], *, show_ids: bool) -> None:
        envelopes = [seal(self._form.line(number, content)) for number, content in batch]
        try:
            receipts = await broker.publish(envelopes)
        except InvalidArgumentError:
            raise
        except GodwitError as error:
            stored = error.accepted if isinstance(error, PartialPublish) else ()
            self._note([Receipt(MessageId(name), fresh=True) for name in stored], show_ids=show_ids)
            if not self._accepted:
                raise
            cause = error.cause if isinstance(error, PartialPublish) else error.fact
            line = batch[len(stored)][0]
            raise PublishStopped(tuple(self._accepted), cause, line, self._form.id is not None) from error
        self._note(receipts, show_ids=show_ids)

    def _note(self, receipts: Iterable[Receipt], *, show_ids: bool) -> None:
        for receipt in receipts:
            self._accepted.append(receipt.id)
            self._duplicates += not receipt.fresh
            if self._as_json:
                print_json(receipt)
            elif show_ids:
                sys.stdout.write(f"{receipt.id}\n")

    def _progress(self) -> Progress:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = remarks()
        return Progress(*columns, console=console, transient=True, disable=not console.is_terminal or self._as_json)

    def _sum_up(self) -> None:
        if self._as_json:
            return
        took = duration_text(timedelta(seconds=time.monotonic() - self._began))
        again = f" {self._duplicates:,} of them had been published before." if self._duplicates else ""
        remarks().print(f"{count_text(len(self._accepted), 'message')} to {self._form.queue!r} in {took}.{again}")


class UndeclaredQueue(QueueNotFound):
    """The queue does not exist, and --declare was not given."""

    @property
    def remedy(self) -> str:
        return "Check the name, or create the queue with --declare."


def batches(lines: Iterable[tuple[int, Any]], size: int) -> Iterator[list[tuple[int, Any]]]:
    """Cut numbered payloads into lists of at most `size`."""
    rest = iter(lines)
    while batch := list(islice(rest, size)):
        yield batch


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(publish)
