"""`godwit pipeline audit`: whether anything was lost, doubled, stuck or out of order."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from godwit.cli.args.options import Json, Store, Url
from godwit.cli.args.values import duration
from godwit.cli.exits import Exit
from godwit.cli.pipelines.options import DEFAULT_NAME, LakeFolder, Master, Name, Queues, lake_of, settings_of
from godwit.cli.pipelines.progress import interrupt_on_sigterm, show_batches
from godwit.cli.shown.output import print_json, remarks, results
from godwit.cli.shown.quantities import count_text

if TYPE_CHECKING:
    from godwit.pipeline.jobs.audit import AuditResult

EXAMPLES: Final = """Examples:

\b
  godwit pipeline audit
  godwit pipeline audit --url redis://localhost --store postgresql://db/godwit
  godwit pipeline audit --no-live --json | jq .counts
"""
LOCAL: Final = "local[*]"
FIVE_MINUTES: Final = timedelta(minutes=5)
ONE_MINUTE: Final = timedelta(minutes=1)


def audit(
    name: Name = DEFAULT_NAME,
    queues: Queues = None,
    live: Annotated[
        bool, typer.Option("--live/--no-live", help="Compare with a listing of what the broker has right now.")
    ] = True,
    grace: Annotated[
        timedelta,
        typer.Option(
            parser=duration, metavar="DURATION", help="A lease or schedule so long past is stuck.", show_default="5m"
        ),
    ] = FIVE_MINUTES,
    lease: Annotated[
        timedelta,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="Without a listing: a message overtaken for so long is suspect.",
            show_default="1m",
        ),
    ] = ONE_MINUTE,
    lake: LakeFolder = None,
    master: Master = LOCAL,
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """Follow the journal to its end and report whether every message was handled.

    Exit code 0 when all is well, 7 when something is wrong, 8 when it cannot be known.
    """
    from godwit.pipeline.jobs.audit import AuditSettings, run_audit
    from godwit.pipeline.jobs.run import RunSettings

    configuration = settings_of(url, store)
    settings = AuditSettings(
        run=RunSettings(
            broker_url=configuration.broker_url,
            store_url=configuration.store_url,
            lake=lake_of(configuration, lake),
            name=name,
            parts=("archive", "audit"),
            queues=tuple(queues or ()),
            master=master,
            once=True,
        ),
        live=live,
        grace=grace,
        lease=lease,
    )
    with interrupt_on_sigterm(), show_batches("audit", quiet=as_json) as report:
        result = run_audit(settings, report=report)
    if as_json:
        print_json(result)
    else:
        show(result)
    return {"clean": Exit.OK, "wrong": Exit.UNRECONCILED, "unknown": Exit.UNHEALTHY}[result.verdict]


def show(result: AuditResult) -> None:
    """Print the verdict with its counts and findings."""
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for kind in result.counts:
        view.add_column(kind.replace("_", " "), justify="right", no_wrap=True)
    view.add_column("open", justify="right", no_wrap=True)
    # Without a listing of the broker nothing can be called lost, and that is not the same as nothing lost.
    counts = ["-" if kind == "lost" and not result.live else f"{count:,}" for kind, count in result.counts.items()]
    view.add_row(*counts, f"{result.open:,}")
    results().print(view)
    if result.findings:
        results().print(_findings(result))
    for reason in result.unknown:
        remarks().print(reason)
    remarks().print(f"Verdict: {result.verdict}, after {count_text(result.rows, 'new row')}.")


def _findings(result: AuditResult) -> Table:
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("kind", "queue", "group", "message", "what"):
        view.add_column(name, no_wrap=name != "what")
    for finding in result.findings:
        view.add_row(
            finding.kind.replace("_", " "), finding.queue, finding.group or "", finding.message_id or "", finding.what
        )
    return view


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(audit)
