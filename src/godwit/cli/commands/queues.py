"""`godwit queues`: the depths of every queue and group, once or live."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from godwit.admin.control import ACTIVE, Holds, holds
from godwit.brokers.contract import Broker, GroupStats, QueueStats
from godwit.cli.args.connection import open_broker
from godwit.cli.args.options import Json, Url
from godwit.cli.args.values import duration, whole
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, remarks, results, visible
from godwit.cli.shown.quantities import size_text
from godwit.core.errors import QueueNotFound
from godwit.core.names import QueueName
from godwit.runtime.producer.stats import ProducerStats, producers

EXAMPLES = """Examples:

\b
  godwit queues
  godwit queues orders --watch
  godwit queues --json | jq '.[] | select(.groups[].dead > 0) | .name'
"""


def queues(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="QUEUE", help="Only these queues.", show_default=False)
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show them again and again until Ctrl-C.")] = False,
    every: Annotated[
        timedelta, typer.Option(parser=duration, metavar="DURATION", help="How often to refresh.", show_default="1s")
    ] = timedelta(seconds=1),
    times: Annotated[
        int | None, typer.Option(parser=whole(1, 1_000_000_000), metavar="N", help="Stop after this many refreshes.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Show how much every queue and group holds.

    Blocked messages wait for an earlier one of their ordering key; full groups refuse publishes; a
    paused group is not pulled from, a draining queue takes no messages. Producers that reported in the last 30
    seconds follow with their rate over a minute. Exit code 1 when there is no queue.
    """

    async def run() -> Exit:
        async with open_broker(url) as broker:
            if watch:
                return await _watch(broker, tuple(names or ()), every, times, as_json=as_json)
            return _show_once(await _overview(broker, tuple(names or ())), as_json=as_json)

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        if not watch:
            raise
        return Exit.OK  # the way to end a watch


async def _select(broker: Broker, names: tuple[str, ...]) -> list[QueueStats]:
    stats = sorted(await broker.stats(), key=lambda queue: queue.name)
    known = tuple(queue.name for queue in stats)
    for name in names:
        if name not in known:
            raise QueueNotFound(name, known)
    return [queue for queue in stats if not names or queue.name in names]


class QueueOverview(msgspec.Struct, frozen=True):
    """The queues, holds and producers at one moment."""

    stats: list[QueueStats]
    held: Holds
    producers: list[ProducerStats]

    def documents(self) -> list[dict[str, Any]]:
        """Return the queues as `docs/cli.md` describes them."""
        return [as_document(queue, self.held, self.producers) for queue in self.stats]


async def _overview(broker: Broker, names: tuple[str, ...]) -> QueueOverview:
    stats = await _select(broker, names)
    chosen = {queue.name for queue in stats}
    heard = [
        producer for producer in await producers(broker.shared) if not names or not chosen.isdisjoint(producer.queues)
    ]
    return QueueOverview(stats, await holds(broker.shared), heard)


def _show_once(overview: QueueOverview, *, as_json: bool) -> Exit:
    if as_json:
        print_json(overview.documents())
    elif overview.stats:
        results().print(overview_view(overview))
    else:
        remarks().print("There are no queues yet. Make one: godwit publish QUEUE PAYLOAD --declare")
    return Exit.OK if overview.stats else Exit.EMPTY


def overview_view(overview: QueueOverview, rates: Mapping[QueueName, float] | None = None) -> Group:
    """Return the tables of queues and, if there are any, of producers."""
    queues = table(overview.stats, overview.held, rates)
    return Group(queues, Text(), producers_table(overview.producers)) if overview.producers else Group(queues)


async def _watch(broker: Broker, names: tuple[str, ...], every: timedelta, times: int | None, *, as_json: bool) -> Exit:
    console = results()
    live = Live(console=console, auto_refresh=False) if console.is_terminal and not as_json else None
    looks, before, since = 0, dict[str, int](), time.monotonic()
    if live:
        live.start()
    try:
        while True:
            overview = await _overview(broker, names)
            stats, now = overview.stats, time.monotonic()
            rates = {
                queue.name: (queue.published - before.get(queue.name, queue.published)) / (now - since)
                for queue in stats
            }
            before, since = {queue.name: queue.published for queue in stats}, now
            if as_json:
                print_json(overview.documents())
                console.file.flush()
            elif live:
                live.update(overview_view(overview, rates), refresh=True)
            else:
                console.print(overview_view(overview, rates))
            looks += 1
            if looks == times:
                return Exit.OK
            await asyncio.sleep(every.total_seconds())
    finally:
        if live:
            live.stop()


def as_document(queue: QueueStats, held: Holds, known: Iterable[ProducerStats] = ()) -> dict[str, Any]:
    """Return a queue as the JSON document that `docs/cli.md` describes."""
    document: dict[str, Any] = msgspec.to_builtins(queue)
    document["producers"] = [
        {
            "name": producer.name,
            "instance": producer.instance,
            "accepted": producer.queues[queue.name],
            "per_second": producer.per_second,
        }
        for producer in known
        if queue.name in producer.queues
    ]
    for group, stats in zip(document["groups"], queue.groups, strict=True):
        group["depth"] = stats.depth
        group["state"] = held.state(queue.name, stats.name)
        group["rate"] = held.rates.get((queue.name, stats.name))
    return document


def table(stats: Iterable[QueueStats], held: Holds, rates: Mapping[QueueName, float] | None = None) -> Table:
    """Return the table of queues; `rates` adds how many messages a second are published."""
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("queue", "group"):
        view.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in ("ready", "blocked", "delayed", "leased", "dead", "bytes"):
        view.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    if rates is not None:
        view.add_column("in/s", justify="right", no_wrap=True, min_width=4)
    if held.rates:
        view.add_column("at most", justify="right", no_wrap=True)
    view.add_column("full", no_wrap=True, min_width=4)
    view.add_column("state", no_wrap=True, min_width=6)
    for queue in stats:
        for index, group in enumerate(queue.groups):
            rate = [] if rates is None else ["" if index else f"{rates[queue.name]:,.0f}"]
            view.add_row(
                "" if index else queue.name,
                group.name,
                *_numbers(group),
                *rate,
                *([held.rates.get((queue.name, group.name), "")] if held.rates else []),
                Text("full", "red") if group.full else "",
                _state(held.state(queue.name, group.name)),
            )
    return view


def producers_table(known: Iterable[ProducerStats]) -> Table:
    """Return the table of producers."""
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    view.add_column("producer", no_wrap=True, overflow="ellipsis")
    for name in ("accepted", "failed", "per second"):
        view.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    view.add_column("queues", overflow="fold")
    for producer in known:
        numbers = (f"{producer.accepted:,}", f"{producer.failed:,}", f"{producer.per_second:,.1f}")
        view.add_row(visible(producer.name), *numbers, visible(", ".join(sorted(producer.queues))))
    return view


def _state(state: str) -> Text:
    return Text(state, "dim" if state == ACTIVE else "yellow")


def _numbers(group: GroupStats) -> list[Text]:
    counts = [
        Text(f"{count:,}", "" if count else "dim")
        for count in (group.ready, group.blocked, group.delayed, group.leased)
    ]
    return [*counts, Text(f"{group.dead:,}", "red" if group.dead else "dim"), Text(size_text(group.bytes))]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(queues)
