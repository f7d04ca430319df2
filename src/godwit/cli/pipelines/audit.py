"""`godwit pipeline audit`: whether anything was lost, doubled, stuck or out of order."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from godwit.cli.args.options import Json, Store, Url
from godwit.cli.args.values import duration
from godwit.cli.exits import Exit
from godwit.cli.pipelines.options import (
    DEFAULT_NAME,
    AcceptLoss,
    LakeFolder,
    Master,
    Name,
    Queues,
    lake_of,
    settings_of,
)
from godwit.cli.pipelines.progress import interrupt_on_sigterm, show_batches
from godwit.cli.shown.output import print_json, remarks, results
from godwit.cli.shown.quantities import count_text

if TYPE_CHECKING:
    from godwit.core.settings import Settings
    from godwit.pipeline.audit.verdict import AuditResult

EXAMPLES: Final = """Examples:

\b
  godwit pipeline audit
  godwit pipeline audit --url redis://localhost --store postgresql://db/godwit
  godwit pipeline audit --no-live --json | jq .counts
  godwit pipeline audit --verify
"""
LOCAL: Final = "local[*]"
FIVE_MINUTES: Final = timedelta(minutes=5)
ONE_MINUTE: Final = timedelta(minutes=1)
SPANS_SHOWN: Final = 20


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
    accept_loss: AcceptLoss = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that no stored verdict was changed or removed, and audit nothing.")
    ] = False,
    lake: LakeFolder = None,
    master: Master = LOCAL,
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """Follow the journal to its end and report whether every message was handled.

    Exit code 0 when all is well, 7 when something is wrong, 8 when it cannot be known. Each verdict is stored with the
    hash of the one before; --verify checks them, and exits with 7 when one was changed or is missing.
    """
    from godwit.pipeline.jobs.audit import AuditSettings, run_audit
    from godwit.pipeline.jobs.run import RunSettings

    configuration = settings_of(url, store)
    if verify:
        return _verify(configuration, name, as_json=as_json)
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
            accept_loss=accept_loss,
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


def _verify(configuration: Settings, name: str, *, as_json: bool) -> Exit:
    """Check the chain of stored verdicts, and print its end."""
    from godwit.pipeline.jobs.audit import verify_chain
    from godwit.pipeline.spark.connections import Connections

    with Connections(configuration.broker_url, configuration.store_url) as connections:
        chain = verify_chain(connections, name)
    if as_json:
        print_json(chain)
    else:
        remarks().print(f"{count_text(chain.verdicts, 'verdict')}, each following from the one before.")
        if chain.problem is not None:
            remarks().print(chain.problem)
        results().print(chain.hash)
    if chain.problem is not None:
        return Exit.UNRECONCILED
    return Exit.OK if chain.verdicts else Exit.EMPTY


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
    for span in result.unknown[:SPANS_SHOWN]:
        remarks().print(f"Unknown: {span}")
    if len(result.unknown) > SPANS_SHOWN:
        remarks().print(f"Unknown: {len(result.unknown) - SPANS_SHOWN:,} more spans (--json lists them).")
    for remark in result.remarks:
        remarks().print(f"Unknown: {remark}")
    remarks().print(_coverage(result))
    remarks().print(
        f"Verdict {result.number:,}: {result.verdict}, after {count_text(result.rows, 'new row')}. Hash {result.hash}."
    )


def _coverage(result: AuditResult) -> str:
    """Return what the verdict covers as a sentence."""
    covered = result.coverage
    if covered.since is None or covered.until is None:
        return "Covers nothing: no journal has a row."
    compared = f"{covered.compared:,} compared with the broker" if result.live else "not compared with the broker"
    shards, copies = count_text(len(covered.shards), "journal"), f"{covered.copies:,} copies"
    return f"Covers {copies} in {shards} ({compared}), from {covered.since:%F %T} to {covered.until:%F %T} UTC."


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
