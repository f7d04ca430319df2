"""`godwit pipeline report`: figures and advice, in the terminal, as JSON or as one page with plots."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from godwit.cli.args.options import Json, Store, Url
from godwit.cli.args.values import instant
from godwit.cli.exits import Exit
from godwit.cli.pipelines.options import DEFAULT_NAME, LakeFolder, Master, Name, Queues, lake_of, settings_of
from godwit.cli.pipelines.progress import interrupt_on_sigterm, show_work
from godwit.cli.shown.output import print_json, remarks, results
from godwit.cli.shown.quantities import duration_text

if TYPE_CHECKING:
    from godwit.pipeline.report.model import Report

EXAMPLES: Final = """Examples:

\b
  godwit pipeline report
  godwit pipeline report --html report.html --since 2030-01-01T00:00:00Z
  godwit pipeline report --json | jq '.advice[] | .text'
"""
LOCAL: Final = "local[*]"


def report(
    name: Name = DEFAULT_NAME,
    queues: Queues = None,
    since: Annotated[
        datetime | None, typer.Option(parser=instant, metavar="INSTANT", help="Only what happened from then on.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(parser=instant, metavar="INSTANT", help="Only what happened before.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write a page with plots that needs no other file.", dir_okay=False
        ),
    ] = None,
    lake: LakeFolder = None,
    master: Master = LOCAL,
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """Report latency, throughput, failures, retries, lateness and who did the work, and what follows from it.

    Reads the lake of the pipeline and what the journal holds behind it. Exit code 1 when nothing has happened.
    """
    from godwit.pipeline.jobs.report import ReportSettings, run_report

    configuration = settings_of(url, store)
    settings = ReportSettings(
        broker_url=configuration.broker_url,
        store_url=configuration.store_url,
        lake=lake_of(configuration, lake),
        name=name,
        queues=tuple(queues or ()),
        since=since,
        until=until,
        master=master,
    )
    with interrupt_on_sigterm(), show_work("report", quiet=as_json):
        made = run_report(settings)
    if html is not None:
        from godwit.pipeline.report.html_page import render_page

        html.write_text(render_page(made), encoding="utf-8")
        remarks().print(f"The page is in {html}.")
    if as_json:
        print_json(made)
    else:
        show(made)
    return Exit.OK if made.groups else Exit.EMPTY


def show(made: Report) -> None:
    """Print the headline table and the advice."""
    results().print(headline(made))
    if made.advice:
        results().print(_advice(made))


def headline(made: Report) -> Table:
    """Return queues and groups as a table."""
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("queue", "group"):
        view.add_column(name, no_wrap=True)
    for name in ("enqueued", "processed", "given up", "retries", "deepest", "wait p50", "wait p95", "run p95"):
        view.add_column(name, justify="right", no_wrap=True)
    for group in made.groups:
        view.add_row(
            group.queue, group.group, f"{group.enqueued:,}", f"{group.processed:,}", f"{group.failed:,}",
            f"{group.retries:,}", f"{group.peak_depth or 0:,}", _duration(group.wait_p50), _duration(group.wait_p95),
            _duration(group.run_p95),
        )  # fmt: skip
    return view


def _duration(ms: int | None) -> str:
    return "-" if ms is None else duration_text(timedelta(milliseconds=ms))


def _advice(made: Report) -> Table:
    view = Table(box=None, pad_edge=False, padding=(1, 2, 0, 0))
    for name in ("verdict", "setting", "queue / group"):
        view.add_column(name, no_wrap=True)
    view.add_column("why")
    for advice in made.advice:
        view.add_row(advice.verdict, advice.subject, f"{advice.queue} / {advice.group}", advice.text)
    return view


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(report)
