"""`godwit schedule`: messages due later or repeatedly, and campaigns of many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import typer

from godwit.cli.args.command_group import add_group
from godwit.cli.args.connection import manager_for
from godwit.cli.args.options import Json, Queue, Store, Url
from godwit.cli.args.payload_lines import parse_payload
from godwit.cli.args.values import Misuse, duration, duration_or_instant, instant, pairs, whole
from godwit.cli.commands.schedules.bulk import check_declared, register_bulk
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, remarks, results
from godwit.cli.shown.schedules import firing_document, local_times, schedule_document, schedule_table, show_schedule
from godwit.core.clock import SYSTEM_CLOCK, utc_now
from godwit.core.errors import ScheduleNotFound
from godwit.core.messages.message import Message
from godwit.core.schedule.rules import checked_rule
from godwit.core.schedule.rules import preview as preview_rule
from godwit.core.schedule.schedules import Misfire, Rule, ScheduleStatus
from godwit.manager import MessageQueueManager

EXAMPLES: Final = """Examples:

\b
  godwit schedule add reports '{"kind": "daily"}' --cron '0 7 * * MON-FRI'
  godwit schedule add mail '{"to": "a@b.c"}' --at 2030-01-31T09:00:00Z
  godwit schedule list
  godwit schedule preview --cron '30 2 * * *' --timezone Europe/Berlin
  godwit schedule load spring birthdays.jsonl --queue mail
"""
ADD_EXAMPLES: Final = """Examples:

\b
  godwit schedule add reports '{"kind": "daily"}' --cron @daily --id daily
  godwit schedule add mail '{"to": "a@b.c"}' --at 2h
"""
LIST_EXAMPLES: Final = """Examples:

\b
  godwit schedule list
  godwit schedule list --status paused --json
"""
SHOW_EXAMPLES: Final = """Examples:

\b
  godwit schedule show daily-report
"""
PREVIEW_EXAMPLES: Final = """Examples:

\b
  godwit schedule preview daily-report -n 3
  godwit schedule preview --cron '30 2 * * *' --timezone America/New_York
"""
CHANGE_EXAMPLES: Final = """Examples:

\b
  godwit schedule pause daily-report
  godwit schedule resume daily-report
  godwit schedule cancel daily-report
"""
MOST: Final = 1_000_000
YEARS: Final = timedelta(days=36_500)

Id = Annotated[str, typer.Argument(metavar="ID", help="A schedule, or a scheduled message.", show_default=False)]
Cron = Annotated[
    str | None, typer.Option("--cron", metavar="EXPRESSION", help="When, as cron says it: five fields, six, or @daily.")
]
Zone = Annotated[str, typer.Option("--timezone", metavar="ZONE", help="Whose clocks the expression means.")]


def add(
    queue: Queue,
    content: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="The payload, as JSON.", show_default=False)
    ] = None,
    cron: Cron = None,
    at: Annotated[
        str | None,
        typer.Option(parser=duration_or_instant, metavar="DURATION|INSTANT", help="Once: so much later, or then."),
    ] = None,
    timezone: Zone = "UTC",
    type: Annotated[str, typer.Option("--type", "-t", metavar="NAME", help="What the message is.")] = "message",
    priority: Annotated[
        int, typer.Option("--priority", "-p", parser=whole(0, 100), metavar="0..100", help="The higher the sooner.")
    ] = 50,
    attribute: Annotated[
        list[str] | None, typer.Option("--attribute", "-a", metavar="KEY=VALUE", help="An attribute; repeatable.")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="What to call it.")] = None,
    starts: Annotated[datetime | None, typer.Option(parser=instant, metavar="INSTANT", help="Not before.")] = None,
    ends: Annotated[datetime | None, typer.Option(parser=instant, metavar="INSTANT", help="Not after.")] = None,
    times: Annotated[int | None, typer.Option("--times", metavar="N", help="So often at most.")] = None,
    jitter: Annotated[
        timedelta, typer.Option(parser=duration, metavar="DURATION", help="Delay each by up to so much.")
    ] = timedelta(0),
    misfire: Annotated[
        Misfire, typer.Option(metavar="POLICY", help="Of missed times: fire_once, skip or catch_up.")
    ] = Misfire.FIRE_ONCE,
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """Schedule a message, once (--at) or repeatedly (--cron), and print its id."""
    if (cron is None) == (at is None):
        raise Misuse("It is not said when", "Give either --cron or --at.")
    when: Any = at  # typer wants one plain type; the parser returns either of two
    message = Message(
        queue=queue,
        type=type,
        priority=priority,
        attributes=pairs(attribute or []),
        payload=None if content is None else parse_payload(content, place="PAYLOAD"),
    )
    options: dict[str, Any] = {}
    if cron is not None:
        options = {"cron": cron, "timezone": timezone, "id": id, "starts_at": starts, "ends_at": ends,
                   "max_occurrences": times, "jitter": jitter, "misfire": misfire}  # fmt: skip
        due = None
    else:
        due = utc_now() + when if isinstance(when, timedelta) else when

    async def run(mq: MessageQueueManager) -> Exit:
        await check_declared(mq, queue)
        known = await mq.schedule_message(message, due, **options)
        if as_json:
            print_json({"id": known})
        else:
            results().print(known)
        return Exit.OK

    return _run_with_manager(url, store, run)


def list_schedules(
    status: Annotated[
        ScheduleStatus | None, typer.Option(metavar="STATUS", help="Only active, paused, done or cancelled ones.")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Only those of a queue.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", parser=whole(1, MOST), metavar="N", help="At most so many.")
    ] = 100,
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """List schedules that recur, and the next messages that wait for their time.

    Exit code 1 when there is nothing.
    """

    async def run(mq: MessageQueueManager) -> Exit:
        schedules = await mq.scheduler.list(status=status, queue=queue, limit=limit)
        waiting = [] if status is not None else await mq.scheduler.upcoming(limit=limit)
        waiting = [firing for firing in waiting if queue in (None, firing.queue)]
        if as_json:
            for document in (*map(schedule_document, schedules), *map(firing_document, waiting)):
                print_json(document)
        elif schedules or waiting:
            results().print(schedule_table(schedules, waiting))
        else:
            remarks().print("Nothing is scheduled.")
        return Exit.OK if schedules or waiting else Exit.EMPTY

    return _run_with_manager(url, store, run)


def show(schedule_id: Id, url: Url = None, store: Store = None, as_json: Json = False) -> Exit:
    """Show a schedule or a scheduled message: its rule, its next times, and how well it was kept."""

    async def run(mq: MessageQueueManager) -> Exit:
        try:
            schedule = await mq.scheduler.get(schedule_id)
        except ScheduleNotFound:
            firing = await mq.scheduler.firing(schedule_id)
            if firing is None:
                raise
            if as_json:
                print_json(firing_document(firing))
            else:
                results().print(schedule_table([], [firing]))
            return Exit.OK
        analytics = await mq.scheduler.analytics(schedule_id)
        coming = await mq.scheduler.preview(schedule_id, 5)
        if as_json:
            print_json({**schedule_document(schedule), "next": coming, "lateness": analytics.lateness})
        else:
            show_schedule(results(), schedule, coming, analytics.lateness)
        return Exit.OK

    return _run_with_manager(url, store, run)


def preview(
    schedule_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A schedule; or give --cron.", show_default=False)
    ] = None,
    cron: Cron = None,
    timezone: Zone = "UTC",
    count: Annotated[int, typer.Option("--count", "-n", parser=whole(1, 10_000), metavar="N", help="How many.")] = 10,
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """Show the next times of a schedule, or of an expression that is not scheduled."""
    if (schedule_id is None) == (cron is None):
        raise Misuse("It is not said of what", "Give either an ID or --cron.")
    if cron is not None:
        rule = Rule(cron=cron, timezone=timezone)
        now_ms = SYSTEM_CLOCK.now_ms()
        checked_rule(rule, now_ms=now_ms, max_future=YEARS)
        return _print_times(preview_rule(rule, after_ms=now_ms, count=count), timezone, as_json=as_json)

    async def run(mq: MessageQueueManager) -> Exit:
        schedule = await mq.scheduler.get(str(schedule_id))
        coming = await mq.scheduler.preview(schedule.id, count)
        return _print_times(list(coming), schedule.rule.timezone, as_json=as_json)

    return _run_with_manager(url, store, run)


def _print_times(coming: list[datetime], zone: str, *, as_json: bool) -> Exit:
    if as_json:
        print_json(coming)
    else:
        for line in local_times(coming, zone):
            results().print(line)
    return Exit.OK if coming else Exit.EMPTY


def pause(schedule_id: Id, url: Url = None, store: Store = None, as_json: Json = False) -> Exit:
    """Let a schedule fire no more until it is resumed; messages already sent ahead are taken back."""
    return _change(schedule_id, "paused", lambda mq: mq.scheduler.pause(schedule_id), url, store, as_json=as_json)


def resume(schedule_id: Id, url: Url = None, store: Store = None, as_json: Json = False) -> Exit:
    """Let a paused schedule go on; times that passed meanwhile are not made up for."""
    return _change(schedule_id, "resumed", lambda mq: mq.scheduler.resume(schedule_id), url, store, as_json=as_json)


def cancel(schedule_id: Id, url: Url = None, store: Store = None, as_json: Json = False) -> Exit:
    """End a schedule, or a scheduled message, for good.

    Exit code 1 when there was nothing left to prevent.
    """
    return _change(schedule_id, "cancelled", lambda mq: mq.scheduler.cancel(schedule_id), url, store, as_json=as_json)


def _change(
    schedule_id: str,
    word: str,
    change: Callable[[MessageQueueManager], Awaitable[bool | None]],
    url: str | None,
    store: str | None,
    *,
    as_json: bool,
) -> Exit:
    async def run(mq: MessageQueueManager) -> Exit:
        changed = await change(mq) is not False
        if as_json:
            print_json({"id": schedule_id, word: changed})
        else:
            remarks().print(f"{schedule_id} {word}." if changed else f"{schedule_id} was over already.")
        return Exit.OK if changed else Exit.EMPTY

    return _run_with_manager(url, store, run)


def _run_with_manager(
    url: str | None, store: str | None, run: Callable[[MessageQueueManager], Awaitable[Exit]]
) -> Exit:
    async def whole() -> Exit:
        async with manager_for(url, store) as mq:
            return await run(mq)

    return asyncio.run(whole())


def register(app: typer.Typer) -> None:
    """Add the commands."""
    part = add_group(app, "schedule", help="Messages due later, or again and again.", epilog=EXAMPLES)
    part.command(epilog=ADD_EXAMPLES)(add)
    part.command("list", epilog=LIST_EXAMPLES)(list_schedules)
    part.command(epilog=SHOW_EXAMPLES)(show)
    part.command(epilog=PREVIEW_EXAMPLES)(preview)
    part.command(epilog=CHANGE_EXAMPLES)(pause)
    part.command(epilog=CHANGE_EXAMPLES)(resume)
    part.command(epilog=CHANGE_EXAMPLES)(cancel)
    register_bulk(part)
