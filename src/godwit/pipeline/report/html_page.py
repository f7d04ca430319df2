"""A report as one HTML page without external files."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from godwit.pipeline.report.advice import Advice, AdviceVerdict
from godwit.pipeline.report.model import Report
from godwit.pipeline.report.svg_plots import PlotLine, line_plot, share_bar

_SECONDS_FROM_MS: Final = 2_000
"""From this value on an axis shows seconds."""
STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #5d6b7a; --line: #d9dfe6; --paper: #ffffff; --card: #f6f8fa;
  --blue: #2563c9; --green: #1a8754; --red: #c9362b; --amber: #b7791f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf1; --soft: #9aa7b5; --line: #313c48; --paper: #12171d;
  --card: #1a212a; --blue: #6aa1ff; --green: #4cc38a; --red: #ff7b6e; --amber: #e0a83c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 2.5vw 4rem; max-width: 150rem; color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.4rem 0 .6rem; }
p, .soft { color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin: 1.4rem 0; }
.cards div { background: var(--card); border-radius: 8px; padding: .8rem 1rem; }
.cards b { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(40rem, 100%), 1fr)); gap: 0 2.5rem; }
summary { color: var(--soft); cursor: pointer; padding: .5rem 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .35rem .5rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 500; } .text { text-align: left; }
td.wide { white-space: normal; min-width: 20rem; }
td:first-child:not(.change, .keep, .unknown) { white-space: normal; overflow-wrap: anywhere; min-width: 12rem; }
svg { width: 100%; min-width: 40rem; height: auto; display: block; } svg text { font-size: 11px; fill: var(--soft); }
.grid { stroke: var(--line); stroke-width: 1; } polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
polyline.blue { stroke: var(--blue); } polyline.green { stroke: var(--green); } polyline.red { stroke: var(--red); }
polyline.amber { stroke: var(--amber); } circle.blue { fill: var(--blue); } circle.green { fill: var(--green); }
circle.red { fill: var(--red); } circle.amber { fill: var(--amber); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0 1.2rem; margin: .2rem 0 0; padding: 0 0 0 4rem;
  color: var(--soft); }
@media (max-width: 40rem) { .legend { padding: 0; } }
.legend li { white-space: nowrap; }
.legend i { display: inline-block; width: .8rem; height: .2rem; margin-right: .4rem; vertical-align: middle; }
i.blue, .bar .blue { background: var(--blue); } i.green, .bar .green { background: var(--green); }
i.red, .bar .red { background: var(--red); } i.amber, .bar .amber { background: var(--amber); }
.bar { display: inline-block; width: 8rem; height: .6rem; background: var(--line); border-radius: 3px; }
.bar span { display: block; height: 100%; border-radius: 3px; }
td.change, td.keep, td.unknown { white-space: nowrap; }
.change { color: var(--amber); } .keep { color: var(--green); } .unknown { color: var(--soft); }
"""


def render_page(report: Report) -> str:
    """Return the page of a report."""
    body = "".join(
        (
            _head(report),
            _cards(report),
            _advice(report),
            _patterns(report),
            _times(report),
            _groups(report),
            _attempts(report),
            _schedules(report),
            _workers(report),
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Godwit report</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def _head(report: Report) -> str:
    first, last = report.first_at, report.last_at
    span = f"{_time(first)} to {_time(last)}" if first and last else "nothing has happened yet"
    return (
        f"<h1>Godwit report</h1><p>{html.escape(report.source)} &middot; {span} &middot;"
        f" made {_time(report.made_at)}, times in UTC</p>"
    )


def _cards(report: Report) -> str:
    groups = report.groups
    shown = {
        "enqueued": sum(group.enqueued for group in groups),
        "processed": sum(group.processed for group in groups),
        "given up": sum(group.failed for group in groups),
        "retries": sum(group.retries for group in groups),
        "deepest": max((group.peak_depth or 0 for group in groups), default=0),
    }
    cells = "".join(f"<div><b>{number:,}</b>{name}</div>" for name, number in shown.items())
    return f'<div class="cards">{cells}</div>'


def _times(report: Report) -> str:
    moments = [stretch.start for stretch in report.timeline]
    step = _duration(report.stretch_seconds * 1_000)
    through = line_plot(
        moments,
        [
            PlotLine("enqueued", "blue", tuple(point.enqueued for point in report.timeline)),
            PlotLine("processed", "green", tuple(point.processed for point in report.timeline)),
            PlotLine("failed attempts", "red", tuple(point.failed for point in report.timeline)),
        ],
        unit="",
    )
    depth = line_plot(moments, [PlotLine("deepest", "amber", tuple(point.depth for point in report.timeline))], unit="")
    waits, runs = ([point.wait_p95 for point in report.timeline], [point.run_p95 for point in report.timeline])
    ms, unit = (
        (1_000, " s") if max((point or 0 for point in (*waits, *runs)), default=0) >= _SECONDS_FROM_MS else (1, " ms")
    )
    latency = line_plot(
        moments,
        [
            PlotLine(name, colour, tuple(None if point is None else point / ms for point in values))
            for name, colour, values in (("wait p95", "blue", waits), ("run p95", "green", runs))
        ],
        unit=unit,
    )
    return (
        f'<div class="plots"><div><h2>Messages per {step}</h2>{through}</div>'
        f"<div><h2>Depth of the fullest group</h2>{depth}</div>"
        f"<div><h2>How long messages waited and ran</h2>{latency}</div></div>"
    )


def _groups(report: Report) -> str:
    heads = ("queue", "group", "enqueued", "processed", "per minute", "given up", "retries", "deepest")
    rows = [
        (
            group.queue,
            group.group,
            f"{group.enqueued:,}",
            f"{group.processed:,}",
            f"{group.per_minute:,.0f}",
            f"{group.failed:,}",
            f"{group.retries:,}",
            f"{group.peak_depth or 0:,}",
            _duration(group.wait_p50),
            _duration(group.wait_p95),
            _duration(group.wait_p99),
            _duration(group.run_p95),
        )
        for group in report.groups
    ]
    return "<h2>Queues and groups</h2>" + _table((*heads, "wait p50", "p95", "p99", "run p95"), rows, texts=2)


def _advice(report: Report) -> str:
    changes = [advice for advice in report.advice if advice.verdict is AdviceVerdict.CHANGE]
    others = [advice for advice in report.advice if advice.verdict is not AdviceVerdict.CHANGE]
    first = _advice_table(changes) if changes else '<p class="soft">Nothing to change.</p>'
    count = f"{len(others)} {'setting' if len(others) == 1 else 'settings'} to keep, or with too little data"
    rest = f"<details><summary>{count}</summary>{_advice_table(others)}</details>" if others else ""
    return f"<h2>What to change</h2>{first}{rest}"


def _advice_table(rows: Sequence[Advice]) -> str:
    css = {AdviceVerdict.CHANGE: "change", AdviceVerdict.KEEP: "keep", AdviceVerdict.UNKNOWN: "unknown"}
    drawn = "".join(
        f'<tr><td class="text {css[advice.verdict]}">{advice.verdict}</td>'
        f'<td class="text">{html.escape(advice.subject)}</td>'
        f'<td class="text">{html.escape(advice.queue)} / {html.escape(advice.group)}</td>'
        f'<td class="text wide">{html.escape(advice.text)}</td></tr>'
        for advice in rows
    )
    return f'<div class="scroll"><table>{drawn}</table></div>'


def _attempts(report: Report) -> str:
    rows = []
    for figures in report.attempts:
        share = figures.succeeded / (figures.succeeded + figures.failed) if figures.succeeded + figures.failed else 0.0
        rows.append(
            (
                figures.queue,
                figures.group,
                f"{figures.earlier_failures}",
                f"{figures.succeeded:,}",
                f"{figures.failed:,}",
                f"{share:.1%} {share_bar(share, 'green')}",
            )
        )
    heads = ("queue", "group", "earlier failures", "succeeded", "failed", "share that succeeds")
    return "<h2>Whether retrying pays</h2>" + _table(heads, rows, texts=2, markup={5})


def _patterns(report: Report) -> str:
    most = max((pattern.failures for pattern in report.patterns), default=1)
    rows = [
        (
            pattern.error_text or "no dead letter tells it any more",
            pattern.error_fingerprint,
            pattern.error_kind or "",
            ", ".join(pattern.queues),
            f"{pattern.failures:,} {share_bar(pattern.failures / most, 'red')}",
            f"{pattern.given_up:,}",
            _time(pattern.first_at),
            _time(pattern.last_at),
        )
        for pattern in report.patterns
    ]
    heads = ("what was raised", "fingerprint", "kind", "queues", "times", "given up", "first", "last")
    return "<h2>Failures that are the same</h2>" + _table(heads, rows, texts=4, markup={4})


def _schedules(report: Report) -> str:
    rows = [
        (
            lateness.queue,
            lateness.group,
            f"{lateness.messages:,}",
            _duration(lateness.late_p50),
            _duration(lateness.late_p95),
            _duration(lateness.late_max),
            f"{lateness.early:,}",
            f"{lateness.most_in_a_minute:,} at {lateness.fullest_minute:%H:%M}",
        )
        for lateness in report.schedules
    ]
    heads = ("queue", "group", "messages", "late p50", "late p95", "latest", "early", "most in a minute")
    return "<h2>Lateness of scheduled messages</h2>" + _table(heads, rows, texts=2)


def _workers(report: Report) -> str:
    most = max((worker.processed for worker in report.workers), default=1) or 1
    rows = [
        (
            worker.queue,
            worker.group,
            worker.worker,
            f"{worker.delivered:,}",
            f"{worker.processed:,} {share_bar(worker.processed / most, 'blue')}",
            _duration(worker.busy_ms),
        )
        for worker in report.workers
    ]
    heads = ("queue", "group", "worker", "delivered", "processed", "busy")
    return "<h2>Who did the work</h2>" + _table(heads, rows, texts=3, markup={4})


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int, markup: frozenset[int] | set[int] = frozenset()
) -> str:
    """Return a table whose first `texts` columns are text; cells of the `markup` columns hold tags, unescaped."""
    drawn = [
        "".join(
            f"<td{_left(at, texts)}>{cell if at in markup else html.escape(cell)}</td>" for at, cell in enumerate(row)
        )
        for row in rows
    ]
    if not drawn:
        return '<p class="soft">None.</p>'
    head = "".join(f"<th{_left(at, texts)}>{html.escape(name)}</th>" for at, name in enumerate(heads))
    body = "".join(f"<tr>{row}</tr>" for row in drawn)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _left(at: int, texts: int) -> str:
    return ' class="text"' if at < texts else ""


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _duration(ms: int | None) -> str:
    """Return milliseconds in a readable unit."""
    if ms is None:
        return "-"
    for size, unit in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if abs(ms) >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms} ms"
