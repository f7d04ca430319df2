"""Plots as inline SVG: no script, no font, no file beside the page."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

WIDTH: Final = 860
HEIGHT: Final = 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 14, 28
_TICKS: Final = 4
_DAY_SECONDS: Final = 86_400


class PlotLine(msgspec.Struct, frozen=True):
    """A line of a plot: its name in the legend, its colour's CSS class, and a value or None per moment."""

    name: str
    colour: str
    values: tuple[float | None, ...]


def line_plot(moments: Sequence[datetime], drawn: Sequence[PlotLine], *, unit: str) -> str:
    """Return lines over time; a moment without a value leaves a gap."""
    top = _round_up(max((value for line in drawn for value in line.values if value is not None), default=1))
    label = html.escape(", ".join(line.name for line in drawn))
    return (
        f'<div class="scroll"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"{_grid(top, unit)}{_dates(moments)}{''.join(_line(moments, line, top) for line in drawn)}</svg></div>"
        f"{_legend(drawn)}"
    )


def share_bar(share: float, colour: str) -> str:
    """Return a bar that fills a share of its cell."""
    return f'<span class="bar"><span class="{colour}" style="width:{100 * min(1, max(0, share)):.1f}%"></span></span>'


def axis_label(number: float) -> str:
    """Return a number as an axis label: 1.5k, 20M."""
    for power, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= power:
            return f"{number / power:.3g}{letter}"
    return f"{number:.3g}"


def _grid(top: float, unit: str) -> str:
    elements = []
    for tick in range(_TICKS + 1):
        height = _y(top * tick / _TICKS, top)
        label = f"{axis_label(top * tick / _TICKS)}{unit if tick == _TICKS else ''}"
        elements.append(
            f'<line class="grid" x1="{LEFT}" y1="{height:.1f}" x2="{WIDTH - RIGHT}" y2="{height:.1f}"/>'
            f'<text x="{LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{html.escape(label)}</text>'
        )
    return "".join(elements)


def _dates(moments: Sequence[datetime]) -> str:
    if not moments:
        return ""
    long = (moments[-1] - moments[0]).total_seconds() > _DAY_SECONDS
    form = "%d %b %H:%M" if long else "%H:%M:%S"
    chosen = sorted({round(step * (len(moments) - 1) / _TICKS) for step in range(_TICKS + 1)})
    elements = []
    for number in chosen:
        anchor = "start" if number == 0 else "end" if number == len(moments) - 1 else "middle"
        elements.append(
            f'<text x="{_x(number, len(moments)):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">'
            f"{moments[number].strftime(form)}</text>"
        )
    return "".join(elements)


def _line(moments: Sequence[datetime], line: PlotLine, top: float) -> str:
    pieces: list[list[str]] = [[]]
    for number, value in enumerate(line.values):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append(f"{_x(number, len(moments)):.1f},{_y(value, top):.1f}")
    return "".join(
        f'<polyline class="{line.colour}" points="{" ".join(piece)}"/>'
        if len(piece) > 1
        else f'<circle class="{line.colour}" cx="{piece[0].split(",")[0]}" cy="{piece[0].split(",")[1]}" r="2"/>'
        for piece in pieces
        if piece
    )


def _legend(drawn: Sequence[PlotLine]) -> str:
    items = "".join(f'<li><i class="{line.colour}"></i>{html.escape(line.name)}</li>' for line in drawn)
    return f'<ul class="legend">{items}</ul>'


def _x(number: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (number / (count - 1) if count > 1 else 0.5)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _round_up(value: float) -> float:
    """Return the end of an axis that includes the value and whose quarters are short numbers."""
    if value <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if step * power >= value)
