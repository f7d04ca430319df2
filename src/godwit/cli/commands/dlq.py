"""`godwit dlq`: list, show, replay and discard dead letters, and count their causes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Final

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from godwit.admin.dead_letters import PATIENCE, DeadLetterQueueHandler, Progress, inspection
from godwit.admin.edits import check_patch
from godwit.admin.letter_filter import LetterFilter
from godwit.brokers.contract import DeadLetter, LetterId
from godwit.cli.args.actor import actor_name
from godwit.cli.args.command_group import add_group
from godwit.cli.args.confirmation import Yes, confirm
from godwit.cli.args.connection import open_broker
from godwit.cli.args.letter_filter import with_filter
from godwit.cli.args.options import Actor, Json, Url
from godwit.cli.args.payload_lines import parse_payload
from godwit.cli.args.values import Misuse, duration, whole
from godwit.cli.exits import Exit
from godwit.cli.shown.dead_letters import (
    inspection_document,
    letter_document,
    letter_table,
    pattern_table,
    show_letter,
)
from godwit.cli.shown.output import print_json, remarks, results
from godwit.cli.shown.quantities import count_text
from godwit.core.clock import utc_now
from godwit.core.errors import InvalidMessage
from godwit.core.names import queue_name

EXAMPLES: Final = """Examples:

\b
  godwit dlq patterns
  godwit dlq list orders --kind transient --newer-than 1h
  godwit dlq show 'orders#0#default#000000000001'
  godwit dlq replay orders --fingerprint 5f0c2a9d7e11 --rate 50
  godwit dlq discard orders --older-than 30d --yes
"""
LIST_EXAMPLES: Final = """Examples:

\b
  godwit dlq list
  godwit dlq list orders --group billing --limit 20
  godwit dlq list orders --after 'orders#0#default#000000000020'
"""
SHOW_EXAMPLES: Final = """Examples:

\b
  godwit dlq show 'orders#0#default#000000000001'
  godwit dlq show orders --message-id order-7
"""
REPLAY_EXAMPLES: Final = """Examples:

\b
  godwit dlq replay 'orders#0#default#000000000001'
  godwit dlq replay orders --kind transient --rate 100
  godwit dlq replay orders --type invoice --patch '{"payload": {"vat": 19}}'
"""
DISCARD_EXAMPLES: Final = """Examples:

\b
  godwit dlq discard 'orders#0#default#000000000001'
  godwit dlq discard orders --older-than 30d --yes
"""
PATTERNS_EXAMPLES: Final = """Examples:

\b
  godwit dlq patterns
  godwit dlq patterns orders --newer-than 1d --json | jq '.[0].fingerprint'
"""
MOST: Final = 1_000_000_000

Name = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="A queue, or a dead letter queue that several share.", show_default="all"),
]
Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="A dead letter's id, or a NAME as for list.", show_default=False)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count them.")]


@with_filter
def list_letters(
    which: LetterFilter,
    name: Name = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", parser=whole(1, MOST), metavar="N", help="At most so many.")
    ] = 100,
    after: Annotated[
        str | None, typer.Option("--after", metavar="ID", help="Go on behind this dead letter; needs NAME.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """List dead letters by queue, group and time of death.

    Exit code 1 when there are none.
    """
    if after is not None and name is None:
        raise Misuse("--after does not say where", "Name the queue that was listed.")

    async def run() -> Exit:
        shown: list[DeadLetter] = []
        count = 0
        async with _handler(url) as handler:
            async for letter in handler.letters(_with_name(which, name), after=LetterId(after) if after else None):
                count += 1
                if count > limit:
                    break
                if as_json:
                    print_json(letter_document(letter))
                else:
                    shown.append(letter)
        if not as_json:
            _print_list(shown, more=count > limit)
        return Exit.OK if count else Exit.EMPTY

    return asyncio.run(run())


def _print_list(shown: list[DeadLetter], *, more: bool) -> None:
    if not shown:
        remarks().print("There are no such dead letters.")
        return
    results().print(letter_table(shown, now=utc_now()))
    if more:
        last = shown[-1]
        remarks().print(f"There are more: godwit dlq list {last.queue} --after '{last.id}'", soft_wrap=True)


@with_filter
def show(which: LetterFilter, target: Target, url: Url = None, as_json: Json = False) -> Exit:
    """Show dead letters with their whole error history, tracebacks and content.

    Exit code 1 when a NAME has none that match, 4 when an id does not exist.
    """

    async def run() -> Exit:
        shown = 0
        console = results()
        async with _handler(url) as handler:
            async for letter in _targets(handler, target, which):
                inspected = inspection(letter)
                if as_json:
                    print_json(inspection_document(inspected))
                else:
                    show_letter(console, inspected, now=utc_now())
                shown += 1
        if not shown and not as_json:
            remarks().print("There are no such dead letters.")
        return Exit.OK if shown else Exit.EMPTY

    return asyncio.run(run())


@with_filter
def replay(
    which: LetterFilter,
    target: Target,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="At most so many a second.", show_default="no limit")
    ] = None,
    patch: Annotated[
        str | None,
        typer.Option("--patch", metavar="JSON", help="Change the messages by a JSON merge patch before they go."),
    ] = None,
    patience: Annotated[
        timedelta,
        typer.Option(parser=duration, metavar="DURATION", help="Wait so long for a full queue.", show_default="5m"),
    ] = PATIENCE,
    dry_run: DryRun = False,
    actor: Actor = None,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Let dead messages wait again, in their group alone, with counters at zero and their history.

    Interrupted, it is continued by the same command: what was replayed is no longer dead. With --patch a new message
    is published instead of each, whose replay_of names the old one. Exit code 1 when there was nothing to replay.
    """
    change = None if patch is None else _patch(patch)

    async def run(job: DeadLetterJob, handler: DeadLetterQueueHandler) -> None:
        if not _is_letter(target):
            chosen = _with_name(which, target)
            await handler.replay_all(chosen, change=change, rate=rate, progress=job.report, patience=patience)
        elif change is None:
            await handler.replay(LetterId(target))
            job.report(Progress(done=1, read=1, total=1))
        else:
            await handler.edit_and_replay(LetterId(target), change)
            job.report(Progress(done=1, read=1, total=1))

    if dry_run:
        return asyncio.run(_count(url, target, which, "would be replayed", as_json=as_json))
    return DeadLetterJob("replayed", as_json=as_json).run(url, run, actor)


@with_filter
def discard(
    which: LetterFilter,
    target: Target,
    dry_run: DryRun = False,
    yes: Yes = False,
    actor: Actor = None,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Delete dead letters for good.

    Exit code 1 when there was nothing to delete.
    """
    if dry_run:
        return asyncio.run(_count(url, target, which, "would be deleted", as_json=as_json))

    async def run(job: DeadLetterJob, handler: DeadLetterQueueHandler) -> None:
        if _is_letter(target):
            await handler.discard(LetterId(target))
            job.report(Progress(done=1, read=1, total=1))
        else:
            confirm(f"Deleting dead letters of {target!r}", yes=yes)
            await handler.discard_all(_with_name(which, target), progress=job.report)

    return DeadLetterJob("deleted", as_json=as_json).run(url, run, actor)


@with_filter
def patterns(which: LetterFilter, name: Name = None, url: Url = None, as_json: Json = False) -> Exit:
    """Count dead letters by what they died of, the most frequent first.

    Errors that differ only in numbers, ids and quoted words are the same pattern. Exit code 1 when there are none.
    """

    async def run() -> Exit:
        async with _handler(url) as handler:
            failure_patterns = await handler.patterns(_with_name(which, name))
        if as_json:
            print_json(failure_patterns)
        elif failure_patterns:
            results().print(pattern_table(failure_patterns, now=utc_now()))
        else:
            remarks().print("There are no such dead letters.")
        return Exit.OK if failure_patterns else Exit.EMPTY

    return asyncio.run(run())


_Work = Callable[["DeadLetterJob", DeadLetterQueueHandler], Awaitable[None]]


class DeadLetterJob:
    """A replay or a discard in progress: its bar, its summary, and how to continue when it stops early."""

    def __init__(self, word: str, *, as_json: bool) -> None:
        self._word, self._as_json = word, as_json
        self._state = Progress()
        self._began = utc_now()
        console = remarks()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal or as_json)
        self._task = self._bar.add_task(word, total=None)

    def report(self, state: Progress) -> None:
        """Show the progress."""
        self._state = state
        self._bar.update(self._task, completed=state.read, total=state.total)

    def run(self, url: str | None, work: _Work, actor: str | None) -> Exit:
        """Do the work in the name of an actor and print how it ended."""
        name = actor_name(actor)

        async def whole() -> None:
            async with _handler(url, name) as handler:
                await work(self, handler)

        try:
            with self._bar:
                asyncio.run(whole())
        except (Exception, KeyboardInterrupt):
            if self._state.done and not self._as_json:
                self._say()
                since = self._began.isoformat(timespec="milliseconds")
                remarks().print(f"To continue, repeat the command, with --died-before {since}", soft_wrap=True)
            raise
        if self._as_json:
            print_json({self._word: self._state.done, "missing": self._state.missing, "read": self._state.read})
        else:
            self._say()
        return Exit.OK if self._state.done else Exit.EMPTY

    def _say(self) -> None:
        gone = f" {self._state.missing:,} were gone before." if self._state.missing else ""
        remarks().print(f"{count_text(self._state.done, 'dead letter')} {self._word}.{gone}")


async def _count(url: str | None, target: str, which: LetterFilter, word: str, *, as_json: bool) -> Exit:
    count = 0
    async with _handler(url) as handler:
        async for _ in _targets(handler, target, which):
            count += 1
    if as_json:
        print_json({"matching": count})
    else:
        remarks().print(f"{count_text(count, 'dead letter')} {word}.")
    return Exit.OK if count else Exit.EMPTY


@asynccontextmanager
async def _handler(url: str | None, actor: str | None = None) -> AsyncIterator[DeadLetterQueueHandler]:
    async with open_broker(url) as broker:
        yield DeadLetterQueueHandler(broker, actor=actor)


def _with_name(which: LetterFilter, name: str | None) -> LetterFilter:
    return msgspec.structs.replace(which, name=queue_name(name) if name is not None else None)


def _is_letter(target: str) -> bool:
    """Say whether a word is a dead letter's id, which contains a character that no queue's name has."""
    return "#" in target


async def _targets(handler: DeadLetterQueueHandler, target: str, which: LetterFilter) -> AsyncIterator[DeadLetter]:
    if _is_letter(target):
        yield (await handler.inspect(LetterId(target))).letter
        return
    async for letter in handler.letters(_with_name(which, target)):
        yield letter


def _patch(text: str) -> dict[str, object]:
    patch = parse_payload(text, place="--patch")
    if not isinstance(patch, dict):
        raise InvalidMessage(
            "--patch", "is not a JSON object", 'Write it like {"priority": 90, "payload": {"vat": 19}}.'
        )
    check_patch(patch)
    return patch


def register(app: typer.Typer) -> None:
    """Add the commands."""
    part = add_group(app, "dlq", help="Manage dead letters: messages that will not be tried again.", epilog=EXAMPLES)
    part.command("list", epilog=LIST_EXAMPLES)(list_letters)
    part.command(epilog=SHOW_EXAMPLES)(show)
    part.command(epilog=REPLAY_EXAMPLES)(replay)
    part.command(epilog=DISCARD_EXAMPLES)(discard)
    part.command(epilog=PATTERNS_EXAMPLES)(patterns)
