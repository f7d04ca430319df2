"""docs/metrics.md says what the code does, and all of it."""

from __future__ import annotations

import re

from godwit.core.journal.vocabulary import Event
from godwit.telemetry.alerts import ALERT_OF_THRESHOLD, rules
from godwit.telemetry.health import QueueMetrics
from godwit.telemetry.instruments import SERIES_LIMIT
from godwit.telemetry.metrics import TYPES_PER_QUEUE, QueueMetricsCollector
from tests.project.specification import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """Return the rows of the table whose first heading is `heading`, cells without back quotes."""
    rows: list[list[str]] = []
    for part in re.findall(rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        rows += [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in part.splitlines()]
    assert rows
    return rows


def test_every_metric_is_on_the_page_with_its_kind_and_labels_and_no_other() -> None:
    written = [(name, kind, labels) for name, kind, labels, _meaning in table("metric")]
    known = [
        (family.name, family.kind.value, ", ".join(family.labels) or "-") for family in QueueMetricsCollector().families
    ]
    assert written == known


def test_every_journal_event_is_on_the_page_and_no_other() -> None:
    assert [row[0] for row in table("event")] == [event.value for event in Event]


def test_every_alert_is_on_the_page_with_its_threshold_and_key() -> None:
    written = [(row[0], float(row[1]), row[2]) for row in table("alert")]
    in_code = {rule.name: rule.threshold for rule in rules()}
    assert written == [(name.value, in_code[name], key) for key, name in ALERT_OF_THRESHOLD.items()]


def test_every_field_of_the_monitors_numbers_is_on_the_page() -> None:
    assert [row[0] for row in table("field")] == list(QueueMetrics.__struct_fields__)


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    assert f"at most {SERIES_LIMIT:,} series" in PAGE
    assert f"beyond {TYPES_PER_QUEUE} types" in PAGE
