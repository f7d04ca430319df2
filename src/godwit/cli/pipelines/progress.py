"""Progress of the commands of `godwit pipeline`, and their clean end on SIGTERM."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from rich.status import Status

from godwit.cli.shown.output import remarks
from godwit.cli.shown.quantities import count_text

if TYPE_CHECKING:
    from godwit.pipeline.batch.publisher import BatchOutcome


@contextmanager
def show_batches(what: str, *, quiet: bool) -> Iterator[Callable[[BatchOutcome], None]]:
    """Show finished batches: one moving line on a terminal, a line each in a log, nothing when `quiet`."""
    console = remarks()
    began = time.monotonic()
    done = 0
    status = Status(f"{what}: starting Spark", console=console) if console.is_terminal and not quiet else None

    def report(outcome: BatchOutcome) -> None:
        nonlocal done
        done += outcome.rows
        rate = done / max(0.001, time.monotonic() - began)
        line = f"{what}: batch {outcome.batch:,}, {count_text(done, 'row')}, {rate:,.0f} rows/s"
        if status is not None:
            status.update(line)
        elif not quiet:
            console.print(line)

    if status is None:
        yield report
    else:
        with status:
            yield report


@contextmanager
def show_work(what: str, *, quiet: bool) -> Iterator[None]:
    """Show that a job without batches is at work."""
    console = remarks()
    if not console.is_terminal or quiet:
        yield
        return
    with Status(f"{what}: Spark is at work", console=console):
        yield


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end a job as Ctrl-C does: the query is stopped, Spark and its files are removed."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
