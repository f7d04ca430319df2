"""Views of the demo: a live picture in a terminal, plain lines elsewhere, and the final table."""

from __future__ import annotations

from collections import deque
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from godwit.cli.demo.processes import DemoProcess
from godwit.cli.demo.reconciliation import Reconciliation
from godwit.cli.demo.runner import DemoState
from godwit.cli.demo.workload import GROUPS, QueueGroup
from godwit.core.journal.vocabulary import Event

RATE_WINDOW_SECONDS: Final = 2.0
PLAIN_EVERY_SECONDS: Final = 2.0
BAR_WIDTH: Final = 40


class Rates:
    """Messages done per second lately, by group."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[QueueGroup, int]]] = deque()

    def update(self, state: DemoState) -> dict[QueueGroup, float]:
        """Add a state and return the rates."""
        done = {group: state.tally.counts[group][Event.ACKED] for group in GROUPS}
        self._seen.append((state.elapsed, done))
        while len(self._seen) > 1 and self._seen[0][0] < state.elapsed - RATE_WINDOW_SECONDS:
            self._seen.popleft()
        began, before = self._seen[0]
        seconds = max(state.elapsed - began, 0.001)
        return {group: (done[group] - before[group]) / seconds for group in GROUPS}


class LiveView:
    """A picture that changes in place; events are listed below it."""

    def __init__(self, console: Console, title: str, story: str) -> None:
        self._title, self._story, self._rates = title, story, Rates()
        self._events = Table.grid(padding=(0, 2, 0, 0))
        self._picture: Group | Text = Text(title)
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def update(self, state: DemoState) -> None:
        """Draw the state."""
        self._picture = Group(
            Text.assemble((self._title, "bold"), f"   {state.elapsed:5.1f} s"),
            Text(self._story, "dim"),
            Text(),
            _published(state),
            Text(),
            _groups(state, self._rates.update(state)),
            Text(),
            _workers(state),
            Text(),
        )
        self._draw()

    def event(self, elapsed: float, text: str) -> None:
        """Add a line below the picture."""
        style = "bold red" if text.startswith("kill") else ""
        self._events.add_row(Text(f"{elapsed:5.1f} s", "dim"), Text(text, style))
        self._draw()

    def _draw(self) -> None:
        self._live.update(Group(self._picture, self._events), refresh=True)


class PlainView:
    """Lines for logs: one every two seconds, and one per event."""

    def __init__(self, console: Console) -> None:
        self._console, self._rates, self._due = console, Rates(), 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def update(self, state: DemoState) -> None:
        """Print the totals, if they are due."""
        rate = sum(self._rates.update(state).values())
        if state.elapsed < self._due:
            return
        self._due = state.elapsed + PLAIN_EVERY_SECONDS
        groups, tally = state.stats.values(), state.tally
        self._line(
            state.elapsed,
            f"published {state.published:,}  ready {sum(group.ready + group.blocked for group in groups):,}"
            f"  delayed {sum(group.delayed for group in groups):,}  leased {sum(group.leased for group in groups):,}"
            f"  done {tally.total(Event.ACKED):,} ({rate:,.0f}/s)  retries {tally.total(Event.NACKED):,}"
            f"  dead {sum(group.dead for group in groups):,}",
        )

    def event(self, elapsed: float, text: str) -> None:
        """Print the event."""
        self._line(elapsed, text)

    def _line(self, elapsed: float, text: str) -> None:
        self._console.print(f"{elapsed:6.1f} s  {text}", soft_wrap=True)
        self._console.file.flush()


class SilentView:
    """A view without output, for scripts."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def update(self, state: DemoState) -> None:
        """Ignore the state."""

    def event(self, elapsed: float, text: str) -> None:
        """Ignore the event."""


def _published(state: DemoState) -> Table:
    row = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=max(state.planned, 1), completed=state.published, width=BAR_WIDTH)
    row.add_row("published", bar, f"{state.published:,} of {state.planned:,}")
    return row


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("queue", "group"):
        table.add_column(name, no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True, min_width=5)
    return table


def _number(number: float, style: str = "") -> Text:
    return Text(f"{number:,.0f}", style if number else "dim")


def _groups(state: DemoState, rates: dict[QueueGroup, float]) -> Table:
    table = _table("ready", "blocked", "delayed", "leased", "done", "/s", "retries", "dead")
    for group in GROUPS:
        stats, counts = state.stats[group], state.tally.counts[group]
        table.add_row(
            group.queue,
            group.group,
            *map(_number, (stats.ready, stats.blocked, stats.delayed, stats.leased)),
            _number(counts[Event.ACKED], "green"),
            _number(rates[group]),
            _number(counts[Event.NACKED], "yellow"),
            _number(stats.dead, "red"),
        )
    return table


def _workers(state: DemoState) -> Table:
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_row(*(Text(worker.name, "bold red" if worker.killed else "bold") for worker in state.workers))
    table.add_row(*(_state(worker, state) for worker in state.workers))
    return table


def _state(worker: DemoProcess, state: DemoState) -> Text:
    held = len(state.tally.held_by(worker.name))
    if worker.killed:
        return Text(f"killed, {held} held" if held else "killed", "red")
    return Text(f"holds {held}", "" if held else "dim")


def reconciliation_table(verdict: Reconciliation) -> Table:
    """Return the final table."""
    columns = ("published", "done", "dead", "open", "lost", "twice", "out_of_order")
    table = _table(*(name.replace("_", " ") for name in columns))
    for line in verdict.lines:
        table.add_row(line.queue, line.group, *(_styled_number(name, getattr(line, name)) for name in columns))
    table.add_section()
    table.add_row("all copies", "", *(_styled_number(name, verdict.total(name)) for name in columns))
    return table


def _styled_number(column: str, number: int) -> Text:
    style = {"lost": "bold red", "out_of_order": "bold red", "dead": "red", "twice": "yellow", "done": "green"}.get(
        column, ""
    )
    return Text(f"{number:,}", style if number else "")
