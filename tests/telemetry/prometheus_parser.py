"""What a real Prometheus parser makes of a page."""

from __future__ import annotations

from typing import Any

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as open_metrics
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def plain_families(page: str) -> list[Metric]:
    """Return the families of a page in the format 0.0.4."""
    return list(text_string_to_metric_families(page))


def open_metrics_families(page: str) -> list[Metric]:
    """Return the families of a page in the format OpenMetrics."""
    parse: Any = open_metrics.text_string_to_metric_families  # has no annotations
    return list(parse(page))


def samples(families: list[Metric]) -> Samples:
    """Return every number by its name and labels."""
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}
