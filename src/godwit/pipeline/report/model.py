"""The report as a value: what the journal shows about a period, and the advice that follows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from godwit.pipeline.report.advice import Advice, GroupLimits, TracedMessage, advise
from godwit.pipeline.transforms import report_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_PATTERNS: Final = 20
MAX_TRACE: Final = 200_000
STRETCHES: Final = 240
"""The greatest number of points of a plot."""
_NICE_SECONDS: Final = (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 10_800, 21_600, 86_400)


class GroupFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a group: arrivals, outcomes and durations."""

    queue: str
    group: str
    enqueued: int
    delivered: int
    processed: int
    failed: int
    expired: int
    retries: int
    leases_expired: int
    acks_refused: int
    handed_back: int
    peak_depth: int | None
    wait_p50: int | None
    wait_p95: int | None
    wait_p99: int | None
    wait_max: int | None
    run_p50: int | None
    run_p95: int | None
    run_p99: int | None
    first_at: datetime
    last_at: datetime

    @property
    def per_minute(self) -> float:
        """Messages processed per minute of the period."""
        minutes = (self.last_at - self.first_at).total_seconds() / 60
        return self.processed / minutes if minutes else float(self.processed)


class TimelinePoint(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one step of a plot."""

    start: datetime
    enqueued: int
    processed: int
    failed: int
    depth: int | None
    wait_p95: int | None
    run_p95: int | None


class ReportedPattern(msgspec.Struct, frozen=True, kw_only=True):
    """Failures with the same fingerprint."""

    error_fingerprint: str
    error_kind: str | None
    error_text: str | None = None
    """What was raised, while a dead letter tells it."""
    failures: int
    given_up: int
    queues: tuple[str, ...]
    first_at: datetime
    last_at: datetime


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """How attempts after a number of failures ended."""

    queue: str
    group: str
    earlier_failures: int
    succeeded: int
    failed: int
    run_ms: int


class ScheduleLateness(msgspec.Struct, frozen=True, kw_only=True):
    """How late scheduled messages were first delivered."""

    queue: str
    group: str
    messages: int
    early: int
    late_p50: int
    late_p95: int
    late_p99: int
    late_max: int
    most_in_a_minute: int
    fullest_minute: datetime


class WorkerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one worker in one group."""

    queue: str
    group: str
    worker: str
    delivered: int
    processed: int
    busy_ms: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a report, in any form."""

    made_at: datetime
    source: str
    stretch_seconds: int
    groups: tuple[GroupFigures, ...]
    timeline: tuple[TimelinePoint, ...]
    patterns: tuple[ReportedPattern, ...]
    attempts: tuple[Attempts, ...]
    schedules: tuple[ScheduleLateness, ...]
    workers: tuple[WorkerFigures, ...]
    advice: tuple[Advice, ...]

    @property
    def first_at(self) -> datetime | None:
        """The time of the first row."""
        return min((group.first_at for group in self.groups), default=None)

    @property
    def last_at(self) -> datetime | None:
        """The time of the last row."""
        return max((group.last_at for group in self.groups), default=None)


T = TypeVar("T")


def make_report(
    rows: DataFrame,
    *,
    source: str,
    made_at: datetime,
    limits: Mapping[tuple[str, str], GroupLimits] | None = None,
    error_texts: Mapping[str, str] | None = None,
) -> Report:
    """Return the report on journal rows; it reads them several times, so a caller may want to cache them.

    `error_texts` are what was raised, by fingerprint; the journal does not have them.
    """
    texts = error_texts or {}
    patterns = _values(report_tables.patterns(rows, MAX_PATTERNS), ReportedPattern)
    groups = _values(report_tables.groups(rows), GroupFigures)
    step = stretch_seconds(groups)
    attempts = _values(report_tables.attempts(rows), Attempts)
    schedules = _values(report_tables.schedules(rows), ScheduleLateness)
    return Report(
        made_at=made_at,
        source=source,
        stretch_seconds=step,
        groups=groups,
        timeline=_values(report_tables.timeline(rows, step), TimelinePoint),
        patterns=tuple(
            msgspec.structs.replace(pattern, error_text=texts.get(pattern.error_fingerprint)) for pattern in patterns
        ),
        attempts=attempts,
        schedules=schedules,
        workers=_values(report_tables.workers(rows), WorkerFigures),
        advice=advise(
            groups,
            attempts,
            schedules,
            limits=limits or {},
            trace=lambda queue, group: _values(report_tables.trace(rows, queue, group, MAX_TRACE), TracedMessage),
        ),
    )


def stretch_seconds(groups: tuple[GroupFigures, ...]) -> int:
    """Return the step of a plot that shows the whole period in at most `STRETCHES` points."""
    if not groups:
        return _NICE_SECONDS[0]
    length = max(group.last_at for group in groups) - min(group.first_at for group in groups)
    wanted = length.total_seconds() / STRETCHES
    return next((nice for nice in _NICE_SECONDS if nice >= wanted), _NICE_SECONDS[-1])


def _values(table: DataFrame, kind: type[T]) -> tuple[T, ...]:
    rows = [row.asDict() for row in table.collect()]
    return tuple(msgspec.convert(rows, list[kind], from_attributes=False))  # type: ignore[valid-type]
