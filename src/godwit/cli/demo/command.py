"""`godwit demo`: what Godwit does, in under a minute."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from godwit.cli.args.options import Json
from godwit.cli.args.values import Misuse, whole
from godwit.cli.demo.reconciliation import Reconciliation
from godwit.cli.demo.runner import DemoRun, DemoSettings
from godwit.cli.demo.views import LiveView, PlainView, SilentView, reconciliation_table
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, results
from godwit.cli.shown.quantities import count_text

if TYPE_CHECKING:
    from godwit.cli.demo.pipeline_summary import PipelineSummary

TITLE: Final = "Godwit demo: one SQLite file, real processes, one kill -9"
STORY: Final = """\
orders go by priority; emails fail at times and are tried again; events stay in
order per key, and each of two groups gets its copy"""
FILE: Final = "godwit.db"
EXAMPLES = """Examples:

\b
  godwit demo
  godwit demo --messages 20000 --workers 8
  godwit demo --path ./demo          keep the file, then look at it:
  godwit queues --url sqlite:///demo/godwit.db
"""


def demo(
    messages: Annotated[
        int, typer.Option(parser=whole(1_000, 10_000_000), metavar="N", help="How many messages.")
    ] = 6_000,
    workers: Annotated[int, typer.Option(parser=whole(2, 64), metavar="N", help="How many worker processes.")] = 4,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed makes the same messages.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder with the file and the records.")] = False,
    path: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Play in this new folder, and keep it.")] = None,
    pipeline: Annotated[
        bool, typer.Option("--pipeline", help="End with analytics, audit and report of it all on Spark; needs Java.")
    ] = False,
    sabotage: Annotated[bool, typer.Option("--sabotage", hidden=True)] = False,
    as_json: Json = False,
) -> Exit:
    """Watch it at work: many messages, one kill -9, none lost.

    Two publisher processes and several worker processes share a fresh SQLite file. Some handlings fail and are retried,
    some messages become dead letters, and one worker is killed with -9 while it holds messages. In the end the records
    of all processes are compared with the journal: exit code 0 only if published = done + dead + open, 7 otherwise.
    """
    folder = _folder(path)
    settings = DemoSettings(
        url=f"sqlite:///{quote(str(folder / FILE))}",
        folder=folder,
        messages=messages,
        workers=workers,
        seed=seed,
        sabotage=sabotage,
    )
    if pipeline:
        _check_spark()
    began, kept = time.monotonic(), keep or path is not None
    after: PipelineSummary | None = None
    try:
        verdict = asyncio.run(_run(settings, as_json=as_json))
        kept = kept or not verdict.reconciled
        seconds = time.monotonic() - began
        if not as_json:
            _print(results(), verdict, seconds)
        if pipeline:
            after = _summarise(settings, folder if kept else None, as_json=as_json)
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        print_json(_document(verdict, seconds, folder if kept else None, after))
    elif kept:
        results().print(f"Everything is kept in {folder}", soft_wrap=True)
    return Exit.OK if verdict.reconciled and (after is None or after.clean) else Exit.UNRECONCILED


def _check_spark() -> None:
    """Refuse before the run what would fail after it."""
    from godwit.pipeline.spark.session import check_java

    check_java()


def _summarise(settings: DemoSettings, kept: Path | None, *, as_json: bool) -> PipelineSummary:
    from godwit.cli.demo.pipeline_summary import PAGE, show, summarise

    # The page outlives the folder of the run.
    page = (kept or Path(tempfile.mkdtemp(prefix="godwit-report-"))) / PAGE
    after = summarise(settings.url, settings.folder, page, quiet=as_json)
    if not as_json:
        show(results(), after)
    return after


def _folder(path: Path | None) -> Path:
    if path is None:
        return Path(tempfile.mkdtemp(prefix="godwit-demo-"))
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise Misuse(f"{str(path)!r} exists", "Name a folder that does not, so that nothing is mixed.") from None
    except OSError as error:
        raise Misuse(f"{str(path)!r} cannot be made: {error.strerror}", "Name a writable place.") from None
    return path.resolve()


async def _run(settings: DemoSettings, *, as_json: bool) -> Reconciliation:
    console = results()
    view = SilentView() if as_json else LiveView(console, TITLE, STORY) if console.is_terminal else PlainView(console)
    if isinstance(view, PlainView):
        console.print(TITLE)
        console.print(STORY)
    with view:
        return await DemoRun(settings, view).run()


def _document(
    verdict: Reconciliation, seconds: float, folder: Path | None, after: PipelineSummary | None
) -> dict[str, Any]:
    return {
        "pipeline": after.document() if after is not None else None,
        "reconciled": verdict.reconciled,
        "seconds": round(seconds, 1),
        "held_by_killed_worker": verdict.held,
        "leases_run_out_elsewhere": verdict.slow,
        "lines": msgspec.to_builtins(verdict.lines),
        "problems": verdict.problems,
        "median_wait_of_orders": verdict.waits,
        "folder": str(folder) if folder else None,
    }


def _print(console: Console, verdict: Reconciliation, seconds: float) -> None:
    console.print()
    console.print(reconciliation_table(verdict))
    console.print()
    if verdict.reconciled:
        console.print(Text.assemble(("Reconciled", "bold green"), f" in {seconds:.0f} s: {_explained(verdict)}"))
    else:
        for problem in verdict.problems:
            console.print(Text(problem, "red"))
        console.print(Text("It does not reconcile.", "bold red"))


def _explained(verdict: Reconciliation) -> str:
    among = f"also {verdict.slow} leases ran out on this slow machine" if verdict.slow else "all of them among these"
    lanes = ", ".join(f"{lane} {seconds:.2f} s" for lane, seconds in verdict.waits.items())
    return (
        "published = done + dead + open, lost 0, out of order 0.\n"
        f"The killed worker held {count_text(verdict.held, 'message')};"
        f" {verdict.total('twice')} handled twice, {among}.\n"
        f"Median wait of orders: {lanes}."
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(demo)
