"""What a benchmark measures, how it is judged and how it is written down."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

REPEATS = 5
FOLDER = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"
PAGE = FOLDER.parent / "benchmarks.md"

Clock = Callable[[], float]
"""What tells the seconds: `perf_counter`, or `process_time` for work that waits for nothing."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One number, all its repeats, and what was asked of it."""

    name: str
    unit: str
    repeats: list[float]
    goal: float | None = None
    floor: float | None = None
    lower_is_better: bool = False

    @property
    def median(self) -> float:
        """The number that counts."""
        return statistics.median(self.repeats)

    def reaches(self, bound: float | None) -> bool:
        """Say whether the median is as good as `bound`."""
        return bound is None or (self.median <= bound if self.lower_is_better else self.median >= bound)

    @property
    def verdict(self) -> str:
        """Goal reached (or none set), floor reached, or below the floor."""
        if self.goal is None and self.floor is None:
            return "-"
        if not self.reaches(self.floor):
            return "BELOW"
        return "goal" if self.reaches(self.goal) else "floor"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A run of one benchmark: when, where, with which settings, and its results."""

    benchmark: str
    date: str
    machine: str
    settings: dict[str, Any]
    results: list[Result]
    remarks: list[str] = []


def report(benchmark: str, settings: dict[str, Any], results: Sequence[Result], remarks: Sequence[str] = ()) -> Report:
    """Put results together with the time and the machine; `remarks` say why a target is not reached."""
    machine = (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )
    date = datetime.now(UTC).date().isoformat()
    return Report(
        benchmark=benchmark,
        date=date,
        machine=machine,
        settings=settings,
        results=list(results),
        remarks=list(remarks),
    )


def interleaved(measures: dict[str, Callable[[], float]], repeats: int = REPEATS) -> dict[str, list[float]]:
    """Measure several things in turn, so that a noisy moment hits them alike."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(repeats):
        for name, measure in measures.items():
            found[name].append(measure())
    return found


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Divide two series repeat by repeat."""
    return [one / other for one, other in zip(above, below, strict=True)]


def save(found: Report) -> None:
    """Write a run as JSON and the page of all last runs."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{found.benchmark}.json").write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    reports = [msgspec.json.decode(path.read_bytes(), type=Report) for path in sorted(FOLDER.glob("*.json"))]
    PAGE.write_text(page(reports))


def page(reports: Sequence[Report]) -> str:
    """Return the page of all last runs."""
    lines = [
        "# Benchmarks",
        "",
        "The last run of each benchmark, written by `./dev bench`; every repeat is in [docs/benchmarks](benchmarks).",
        "Numbers are medians on a small, shared machine: compare only within one run. *goal* and *floor* say which",
        "of the two targets the median reaches; where it is not the goal, a remark below the table says why.",
        "",
    ]
    for found in reports:
        lines += [f"## {found.benchmark}", "", f"{found.date}, {found.machine}.", ""]
        lines += [f"- {name}: {value}" for name, value in found.settings.items()]
        lines += [
            "",
            "| measured | median | lowest | highest | goal | floor | reached |",
            "|---|--:|--:|--:|--:|--:|---|",
        ]
        for result in found.results:
            numbers = [number(value) for value in (result.median, min(result.repeats), max(result.repeats))]
            bounds = [number(value) if value is not None else "" for value in (result.goal, result.floor)]
            cells = [f"{result.name} ({result.unit})", *numbers, *bounds, result.verdict]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
        for remark in found.remarks:
            lines += [remark, ""]
    return "\n".join(lines)


def number(value: float) -> str:
    """Return a number as a table shows it."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
