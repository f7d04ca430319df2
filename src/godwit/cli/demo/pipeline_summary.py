"""The pipeline over the demo's journal, in one Spark session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

from godwit.cli.pipelines.audit import show as show_audit
from godwit.cli.pipelines.progress import show_work
from godwit.cli.pipelines.report import headline
from godwit.cli.pipelines.run import day_table

if TYPE_CHECKING:
    from godwit.pipeline.audit.verdict import AuditResult
    from godwit.pipeline.report.model import Report
    from godwit.store.pipelines import DayNumbers

PAGE: Final = "godwit-demo-report.html"
MASTER: Final = "local[2]"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSummary:
    """The pipeline's results for a run of the demo."""

    days: list[DayNumbers]
    audit: AuditResult
    report: Report
    page: Path

    @property
    def clean(self) -> bool:
        """Whether the audit found nothing wrong."""
        return self.audit.verdict == "clean"

    def document(self) -> dict[str, Any]:
        """Return the summary as a JSON document."""
        audit = {"verdict": str(self.audit.verdict), "counts": dict(self.audit.counts), "open": self.audit.open}
        return {"days": msgspec.to_builtins(self.days), "audit": audit, "page": str(self.page)}


def summarise(url: str, folder: Path, page: Path, *, quiet: bool) -> PipelineSummary:
    """Archive, count and audit the demo's journal against the broker's own listing, and write the report's page."""
    from godwit.pipeline.jobs.audit import AuditSettings, audit_in_session
    from godwit.pipeline.jobs.report import ReportSettings, report_in_session
    from godwit.pipeline.jobs.run import PARTS, RunSettings
    from godwit.pipeline.report.html_page import render_page
    from godwit.pipeline.spark.connections import Connections
    from godwit.pipeline.spark.session import SMALL, spark_session

    lake = str(folder / "lake")
    run = RunSettings(broker_url=url, store_url=url, lake=lake, parts=PARTS, once=True)
    with (
        show_work("pipeline", quiet=quiet),
        Connections(url, url) as connections,
        spark_session("godwit demo", master=MASTER, settings=SMALL) as spark,
    ):
        verdict = audit_in_session(spark, connections, AuditSettings(run=run))
        made = report_in_session(spark, connections, ReportSettings(broker_url=url, store_url=url, lake=lake))
        days = connections.pipelines(lambda state: state.days())
    page.write_text(render_page(made), encoding="utf-8")
    return PipelineSummary(days=days, audit=verdict, report=made, page=page)


def show(console: Console, summary: PipelineSummary) -> None:
    """Print analytics, audit, headline and the path of the page."""
    console.print()
    console.print(Text("The same story from the journal, through Spark", "bold"))
    console.print(day_table(summary.days))
    console.print()
    show_audit(summary.audit)
    console.print()
    console.print(headline(summary.report))
    console.print()
    console.print(f"Report with plots: {summary.page}", soft_wrap=True)
