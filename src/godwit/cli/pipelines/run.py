"""`godwit pipeline run`, and its parts `analytics` and `archive`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import typer
from rich.table import Table

from godwit.cli.args.options import Json, Store, Url
from godwit.cli.args.values import pairs
from godwit.cli.exits import Exit
from godwit.cli.pipelines.options import (
    DEFAULT_NAME,
    FIVE_SECONDS,
    AcceptLoss,
    Checkpoint,
    Conf,
    Every,
    LakeFolder,
    Master,
    MaxRows,
    MetricsPort,
    Name,
    Once,
    Queues,
    lake_of,
    settings_of,
)
from godwit.cli.pipelines.progress import interrupt_on_sigterm, show_batches
from godwit.cli.shown.output import print_json, remarks, results
from godwit.cli.shown.quantities import count_text

if TYPE_CHECKING:
    from godwit.pipeline.jobs.run import RunSettings, RunSummary
    from godwit.store.pipelines import DayNumbers

RUN_EXAMPLES: Final = """Examples:

\b
  godwit pipeline run --once
  godwit pipeline run --url redis://localhost --store postgresql://db/godwit
  godwit pipeline run --master spark://host:7077 --lake s3a://bucket/lake
"""
ANALYTICS_EXAMPLES: Final = """Examples:

\b
  godwit pipeline analytics --once
  godwit pipeline analytics --once --queue orders --json
"""
ARCHIVE_EXAMPLES: Final = """Examples:

\b
  godwit pipeline archive --once --lake ./lake
"""
LOCAL: Final = "local[*]"
MILLION: Final = 1_000_000


def run_all(
    name: Name = DEFAULT_NAME,
    queues: Queues = None,
    once: Once = False,
    every: Every = FIVE_SECONDS,
    max_rows: MaxRows = MILLION,
    lake: LakeFolder = None,
    master: Master = LOCAL,
    checkpoint: Checkpoint = None,
    accept_loss: AcceptLoss = False,
    conf: Conf = None,
    metrics_port: MetricsPort = None,
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """Turn the journal into lake, analytics and audit as it grows.

    Each batch is read once and published in one transaction together with the position it reaches, so that all numbers
    agree however the job ends. Ctrl-C ends it cleanly; the next run goes on where it was.
    """
    settings = _settings(
        ("archive", "analytics", "audit"), name, queues, once, every, max_rows, lake, master, checkpoint, accept_loss,
        conf, metrics_port, url, store,
    )  # fmt: skip
    return _finish(_run("pipeline", settings, quiet=as_json), as_json=as_json)


def analytics(
    name: Name = DEFAULT_NAME,
    queues: Queues = None,
    once: Once = False,
    every: Every = FIVE_SECONDS,
    max_rows: MaxRows = MILLION,
    master: Master = LOCAL,
    checkpoint: Checkpoint = None,
    accept_loss: AcceptLoss = False,
    conf: Conf = None,
    metrics_port: MetricsPort = None,
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """Count messages, retries, failures, waiting and processing times by minute and day.

    With --once the days are printed.
    """
    settings = _settings(
        ("analytics",), name, queues, once, every, max_rows, None, master, checkpoint, accept_loss, conf,
        metrics_port, url, store,
    )  # fmt: skip
    summary = _run("analytics", settings, quiet=as_json)
    if not once:
        return _finish(summary, as_json=as_json)
    days = _days(settings)
    if as_json:
        print_json(days)
    else:
        results().print(day_table(days))
    return Exit.INTERRUPTED if summary.interrupted else Exit.OK if days else Exit.EMPTY


def archive(
    name: Name = DEFAULT_NAME,
    queues: Queues = None,
    once: Once = False,
    every: Every = FIVE_SECONDS,
    max_rows: MaxRows = MILLION,
    lake: LakeFolder = None,
    master: Master = LOCAL,
    checkpoint: Checkpoint = None,
    accept_loss: AcceptLoss = False,
    conf: Conf = None,
    metrics_port: MetricsPort = None,
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """Write the journal to Parquet files in the lake; compact small files and sweep old ones."""
    settings = _settings(
        ("archive",), name, queues, once, every, max_rows, lake, master, checkpoint, accept_loss, conf,
        metrics_port, url, store,
    )  # fmt: skip
    return _finish(_run("archive", settings, quiet=as_json), as_json=as_json)


def _settings(
    parts: Sequence[str],
    name: str,
    queues: list[str] | None,
    once: bool,
    every: timedelta,
    max_rows: int,
    lake: str | None,
    master: str,
    checkpoint: str | None,
    accept_loss: bool,
    conf: list[str] | None,
    metrics_port: int | None,
    url: str | None,
    store: str | None,
) -> RunSettings:
    from godwit.pipeline.jobs.run import RunSettings

    configuration = settings_of(url, store)
    return RunSettings(
        broker_url=configuration.broker_url,
        store_url=configuration.store_url,
        lake=lake_of(configuration, lake),
        name=name,
        parts=parts,
        queues=tuple(queues or ()),
        master=master,
        once=once,
        every=every,
        max_rows=max_rows,
        checkpoint=checkpoint,
        accept_loss=accept_loss,
        spark=pairs(conf or []),
        metrics_port=metrics_port,
    )


def _run(what: str, settings: RunSettings, *, quiet: bool) -> RunSummary:
    from godwit.pipeline.jobs.run import run

    with interrupt_on_sigterm(), show_batches(what, quiet=quiet) as report:
        return run(settings, report=report)


def _finish(summary: RunSummary, *, as_json: bool) -> Exit:
    if as_json:
        print_json(summary)
    else:
        ended = "Interrupted after" if summary.interrupted else "Done:"
        batches = count_text(summary.batches, "batch") if summary.batches == 1 else f"{summary.batches:,} batches"
        lost = f" {count_text(summary.lost, 'row')} were lost before they were read." if summary.lost else ""
        remarks().print(f"{ended} {count_text(summary.rows, 'row')} in {batches}.{lost}")
    return Exit.INTERRUPTED if summary.interrupted else Exit.OK


def _days(settings: RunSettings) -> list[DayNumbers]:
    from godwit.pipeline.spark.connections import Connections

    with Connections(settings.broker_url, settings.store_url) as connections:
        return connections.pipelines(lambda state: state.days())


def day_table(days: Sequence[DayNumbers]) -> Table:
    """Return days as a table; the row of all groups has no group."""
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("day", "queue", "group"):
        view.add_column(name, no_wrap=True)
    for name in ("enqueued", "processed", "failed", "retried", "peak depth", "mean ms", "per minute"):
        view.add_column(name, justify="right", no_wrap=True)
    for day in days:
        view.add_row(
            day.date, day.queue_name, day.consumer_group or "", f"{day.messages_enqueued:,}",
            f"{day.messages_processed:,}", f"{day.messages_failed:,}", f"{day.messages_retried:,}",
            f"{day.peak_queue_depth:,}", f"{day.average_processing_time_ms:,}", f"{day.throughput_per_minute:,.1f}",
        )  # fmt: skip
    return view


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("run", epilog=RUN_EXAMPLES)(run_all)
    app.command(epilog=ANALYTICS_EXAMPLES)(analytics)
    app.command(epilog=ARCHIVE_EXAMPLES)(archive)
