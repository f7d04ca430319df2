"""Metrics as text: the Prometheus format 0.0.4 and OpenMetrics 1.0.0."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from godwit.telemetry.instruments import Family, Histogram, Labels, MetricKind

PLAIN_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_VALUE_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


def render(families: Iterable[Family], *, open_metrics: bool = False) -> str:
    """Return all families, the empty ones as their description alone."""
    lines = [line for family in families for line in _family(family, open_metrics=open_metrics)]
    if open_metrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def wants_open_metrics(accept: str) -> bool:
    """Say whether an Accept header asks for OpenMetrics."""
    return "application/openmetrics-text" in accept.lower()


def _family(family: Family, *, open_metrics: bool) -> Iterator[str]:
    # OpenMetrics names a counter without the suffix that its samples carry.
    name = family.name.removesuffix("_total") if open_metrics and family.kind is MetricKind.COUNTER else family.name
    yield f"# HELP {name} {family.meaning.translate(_HELP_ESCAPES)}"
    yield f"# TYPE {name} {family.kind}"
    if isinstance(family, Histogram):
        yield from _histogram(family)
        return
    for values, number in sorted(family.series.items()):
        yield f"{family.name}{_labels(family.labels, values)} {_number(number)}"


def _histogram(family: Histogram) -> Iterator[str]:
    names = (*family.labels, "le")
    bounds = [*map(repr, family.bounds), "+Inf"]
    for values, spread in sorted(family.series.items(), key=lambda item: item[0]):
        for bound, count in zip(bounds, accumulate(spread.counts), strict=True):
            yield f"{family.name}_bucket{_labels(names, (*values, bound))} {count}"
        labels = _labels(family.labels, values)
        yield f"{family.name}_sum{labels} {_number(spread.total)}"
        yield f"{family.name}_count{labels} {spread.count}"


def _labels(names: Labels, values: Labels) -> str:
    pairs = zip(names, values, strict=True)
    inside = ",".join(f'{name}="{_encodable(value).translate(_VALUE_ESCAPES)}"' for name, value in pairs)
    return f"{{{inside}}}" if inside else ""


def _encodable(value: str) -> str:
    # A lone surrogate, which JSON can smuggle in, would make the whole page impossible to send.
    return value.encode("utf-8", "replace").decode()


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) else repr(value)
