"""Line charts as SVG, without any library, for pages that need nothing from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

import numpy as np

__all__ = ["COLOURS", "Series", "line_chart", "ticks"]

# Okabe and Ito, "Color Universal Design", 2008: told apart by colour-blind people, too.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b8a300")
_WIDTH, _HEIGHT = 460, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 26, 42
_MOST_POINTS = 300


Numbers = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Series:
    """A line.

    Attributes:
        name: in the legend.
        x, y: of its points, in the order of x.
        low, high: of a band around it, as long as y; empty: none.
        has_points: draw the points, too.
    """

    name: str
    x: Numbers
    y: Numbers
    low: Numbers = field(default_factory=tuple)
    high: Numbers = field(default_factory=tuple)
    has_points: bool = False


def line_chart(title: str, series: Sequence[Series], x_label: str = "environment steps", is_share: bool = False) -> str:
    """Return a chart as an HTML element: an ``svg``, and a legend where there are several lines.

    Args:
        title: above it.
        series: the lines; points that are not finite are left out.
        x_label: below it.
        is_share: y is a share, from 0 to 100 %.
    """
    lines = [_thin(one) for one in series]
    xs = np.concatenate([np.asarray(one.x, float) for one in lines] or [np.zeros(0)])
    if not len(xs):
        return f'<div class="plot">{_open(title)}<text x="12" y="20">{escape(title)}: none</text></svg></div>'
    values = np.concatenate([np.asarray([*one.y, *one.low, *one.high], float) for one in lines])
    x_range = _padded(float(xs.min()), float(xs.max()), 0.0)
    y_range = (-0.02, 1.02) if is_share else _padded(float(values.min()), float(values.max()), 0.06)
    to_x = _scale(x_range, (_LEFT, _WIDTH - _RIGHT))
    to_y = _scale(y_range, (_HEIGHT - _BOTTOM, _TOP))
    parts = [
        _open(title),
        f'<text x="{_LEFT}" y="16" class="title">{escape(title)}</text>',
        *_grid(ticks(*x_range), ticks(*y_range), to_x, to_y, is_share),
        f'<text x="{(_LEFT + _WIDTH) // 2}" y="{_HEIGHT - 6}" class="label middle">{escape(x_label)}</text>',
    ]
    for i, one in enumerate(lines):
        parts += _line(one, COLOURS[i % len(COLOURS)], to_x, to_y)
    legend = _legend([one.name for one in lines]) if len(lines) > 1 else ""
    return f'<div class="plot">{"".join(parts)}</svg>{legend}</div>'


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers within [low, high]: steps of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def number(value: float) -> str:
    """Return a number for people: 1.2M, 350k, 0.03."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{suffix}"
    return f"{value:.3g}"


def _open(title: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" class="chart" role="img" aria-label="{escape(title)}">'


def _thin(one: Series) -> Series:
    """Drop points that are not finite, and average neighbours where there are too many to be seen."""
    columns = [np.asarray(values, float) for values in (one.x, one.y, one.low, one.high)]
    finite = np.isfinite(columns[0]) & np.isfinite(columns[1])
    columns = [values[finite] if len(values) else values for values in columns]
    if len(columns[0]) > _MOST_POINTS and not one.has_points:
        cuts = np.linspace(0, len(columns[0]), _MOST_POINTS + 1).astype(int)
        columns = [
            np.array([values[a:b].mean() for a, b in pairwise(cuts)]) if len(values) else values for values in columns
        ]
    x, y, low, high = columns
    return Series(one.name, x.tolist(), y.tolist(), low.tolist(), high.tolist(), one.has_points)


def _padded(low: float, high: float, share: float) -> tuple[float, float]:
    if high - low < 1e-12 * max(1.0, abs(high)):
        half = abs(high) * 0.1 or 1.0
        return low - half, high + half
    return low - share * (high - low), high + share * (high - low)


def _scale(source: tuple[float, float], target: tuple[float, float]):  # type: ignore[no-untyped-def]
    factor = (target[1] - target[0]) / (source[1] - source[0])
    return lambda value: target[0] + (value - source[0]) * factor


def _grid(xs: list[float], ys: list[float], to_x, to_y, is_share: bool) -> list[str]:  # type: ignore[no-untyped-def]
    parts = []
    for y in ys:
        at = to_y(y)
        text = f"{y:.0%}" if is_share else number(y)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" class="label end">{text}</text>')
    for x in xs:
        parts.append(f'<text x="{to_x(x):.1f}" y="{_HEIGHT - _BOTTOM + 16}" class="label middle">{number(x)}</text>')
    return parts


def _line(one: Series, colour: str, to_x, to_y) -> list[str]:  # type: ignore[no-untyped-def]
    points = [(to_x(x), to_y(y)) for x, y in zip(one.x, one.y, strict=True)]
    parts = []
    if len(one.low):
        upper = [(to_x(x), to_y(y)) for x, y in zip(one.x, one.high, strict=True)]
        lower = [(to_x(x), to_y(y)) for x, y in zip(one.x, one.low, strict=True)]
        outline = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *reversed(lower)])
        parts.append(f'<polygon points="{outline}" fill="{colour}" opacity="0.18"/>')
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
    if one.has_points or len(points) == 1:
        for (x, y), step, value in zip(points, one.x, one.y, strict=True):
            note = escape(f"{one.name}: {value:.4g} at {number(step)}")
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{note}</title></circle>')
    return parts


def _legend(names: list[str]) -> str:
    marks = "".join(
        f'<span><i style="background:{COLOURS[i % len(COLOURS)]}"></i>{escape(name)}</span>'
        for i, name in enumerate(names)
    )
    return f'<div class="legend">{marks}</div>'
