"""`godwit doctor`: what is wrong, or will go wrong, with a broker's or store's server."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Final

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from godwit.admin.doctor import Finding, Severity, examine, worst
from godwit.cli.args.connection import check_exists, settings_for
from godwit.cli.args.options import Json, Url
from godwit.cli.args.values import duration
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, remarks, results, visible
from godwit.cli.shown.quantities import count_text
from godwit.config import without_password

EXAMPLES = """Examples:

\b
  godwit doctor
  godwit doctor redis://localhost:6379
  godwit doctor --json | jq '.findings[] | select(.severity != "ok")'
"""
COLOURS: Final = {Severity.OK: "green", Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.PROBLEM: "bold red"}


def doctor(
    server: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="What to examine.", show_default="the broker of --url or the configuration"),
    ] = None,
    span: Annotated[
        timedelta, typer.Option(parser=duration, metavar="DURATION", help="How long to watch rates.", show_default="2s")
    ] = timedelta(seconds=2),
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings decide the exit code as well.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Examine a broker's server and explain what is wrong.

    Every finding has a reason and a remedy; nothing is changed. Exit code 8 when there is a problem:
    something that loses messages or stops them now.
    """
    address = server or settings_for(url).broker_url
    check_exists(address)
    findings = asyncio.run(examine(address, span=span))
    if as_json:
        shown = [msgspec.to_builtins(finding) for finding in findings]
        print_json({"url": without_password(address), "worst": worst(findings).value, "findings": shown})
    else:
        show(address, findings)
    bad = {Severity.PROBLEM, Severity.WARNING} if strict else {Severity.PROBLEM}
    return Exit.UNHEALTHY if worst(findings) in bad else Exit.OK


def show(address: str, findings: list[Finding]) -> None:
    """Print the table of all checks, then an explanation of each finding that is not ok."""
    console = results()
    console.print(table(findings))
    for finding in findings:
        if finding.severity is not Severity.OK:
            console.print()
            console.print(explanation(finding), soft_wrap=True)
    complaints = sum(finding.severity in {Severity.WARNING, Severity.PROBLEM} for finding in findings)
    sentence = count_text(complaints, "complaint") if complaints else "no complaints"
    remarks().print(f"{without_password(address)}: {count_text(len(findings), 'check')}, {sentence}.", soft_wrap=True)


def table(findings: list[Finding]) -> Table:
    """Return the table of all checks."""
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    view.add_column("check", no_wrap=True)
    view.add_column("", no_wrap=True)
    view.add_column("found", overflow="fold")
    for finding in findings:
        severity = Text(finding.severity.value, COLOURS[finding.severity])
        view.add_row(visible(finding.check), severity, visible(finding.found))
    return view


def explanation(finding: Finding) -> Text:
    """Return why a finding matters and what to do about it."""
    text = Text(f"{finding.severity.value}: {visible(finding.check)}", COLOURS[finding.severity])
    text.append(f"\n  {visible(finding.found)}", "default")
    for sentence in (finding.why, finding.remedy):
        if sentence:
            text.append(f"\n  {visible(sentence)}", "default")
    return text


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(doctor)
