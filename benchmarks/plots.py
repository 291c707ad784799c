"""Dot plots as SVG: a row per client, a dot at the median, a line from the lowest to the highest round.

The SVG is generated directly, because a plotting library would fix one colour scheme; these plots follow the reader's,
light or dark. The same figures give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from benchmarks.results import Spread

_LABEL_WIDTH = 250
_PLOT_WIDTH = 440
_VALUE_WIDTH = 80
_ROW_HEIGHT = 22
_HEAD_HEIGHT = 48
_FOOT_HEIGHT = 30

_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.tick, .unit { font-size: 11px; fill: #59636e }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.ours { fill: #0969da; stroke: #0969da }
.reference { fill: #bc4c00; stroke: #bc4c00 }
.other { fill: #6e7781; stroke: #6e7781 }
.range { stroke-width: 2; opacity: .6 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .tick, .unit { fill: #9198a1 }
  .grid { stroke: #3d444d }
  .ours { fill: #58a6ff; stroke: #58a6ff }
  .reference { fill: #f0883e; stroke: #f0883e }
  .other { fill: #9198a1; stroke: #9198a1 }
}
"""


class Row(NamedTuple):
    """A row of a panel. ``kind`` is a class of the style: ours, reference or other."""

    label: str
    spread: Spread
    kind: str


class Panel(NamedTuple):
    """An axis with its rows."""

    title: str
    rows: Sequence[Row]


def dot_plot(title: str, unit: str, panels: Sequence[Panel], *, logarithmic: bool) -> str:
    """Return a picture of all panels, one below the other, on one scale."""
    spreads = [row.spread for panel in panels for row in panel.rows]
    scale, ticks = (_logarithmic if logarithmic else _linear)(
        min(spread.low for spread in spreads), max(spread.high for spread in spreads)
    )
    width = _LABEL_WIDTH + _PLOT_WIDTH + _VALUE_WIDTH
    body: list[str] = []
    top = 0
    for panel in panels:
        body += _panel(panel, unit, top, scale, ticks)
        top += _HEAD_HEIGHT + _ROW_HEIGHT * len(panel.rows) + _FOOT_HEIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" width="{width}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            *body,
            "</svg>\n",
        ]
    )


def _panel(panel: Panel, unit: str, top: int, scale: Callable[[float], float], ticks: Sequence[float]) -> list[str]:
    head, foot = top + _HEAD_HEIGHT, top + _HEAD_HEIGHT + _ROW_HEIGHT * len(panel.rows)
    parts = [
        f'<text class="title" x="12" y="{top + 26}">{escape(panel.title)}</text>',
        f'<text class="unit" x="{_LABEL_WIDTH}" y="{top + 26}">{escape(unit)}</text>',
    ]
    for tick in ticks:
        x = f"{_x(scale(tick)):.1f}"
        parts.append(f'<line class="grid" x1="{x}" y1="{head - 8}" x2="{x}" y2="{foot}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{foot + 15}" text-anchor="middle">{_number(tick)}</text>')
    for number, row in enumerate(panel.rows):
        y = head + _ROW_HEIGHT * number + _ROW_HEIGHT // 2 - 4
        middle, low, high = (f"{_x(scale(value)):.1f}" for value in row.spread)
        parts += [
            f'<text x="12" y="{y + 4}">{escape(row.label)}</text>',
            f'<line class="range {row.kind}" x1="{low}" y1="{y}" x2="{high}" y2="{y}"/>',
            f'<circle class="{row.kind}" cx="{middle}" cy="{y}" r="4.5"/>',
            f'<text x="{_LABEL_WIDTH + _PLOT_WIDTH + 12}" y="{y + 4}">{three_digits(row.spread.median)}</text>',
        ]
    return parts


def _x(share: float) -> float:
    return _LABEL_WIDTH + share * _PLOT_WIDTH


def _logarithmic(low: float, high: float) -> tuple[Callable[[float], float], list[float]]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    return lambda value: (math.log10(value) - first) / (last - first), [10.0**power for power in range(first, last + 1)]


def _linear(_: float, high: float) -> tuple[Callable[[float], float], list[float]]:
    step = 10.0 ** math.floor(math.log10(high))
    step = next(step * part for part in (0.2, 0.5, 1.0, 2.0) if high / (step * part) <= 6)
    count = math.ceil(high / step)
    return lambda value: value / (count * step), [step * number for number in range(count + 1)]


def three_digits(value: float) -> str:
    """Format a number with three significant digits, and at most two decimals above one."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:,.0f}" if digits <= 0 else f"{value:.{digits}f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:.6g}"
