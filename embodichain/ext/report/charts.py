"""Line charts for the pages: SVG drawn by matplotlib, which takes its colour from the page, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

# Okabe and Ito, "Color Universal Design", 2008: distinguishable with colour blindness.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b8a300")
_MOST_POINTS = 300
_SIZE = 460 / 72, 230 / 72  # inches; an inch is 72 units of the SVG
_AXES = (0.13, 0.19, 0.84, 0.77)  # left, bottom, width, height, as shares of the size
_INK = "#010203"  # placeholder for the page's own colour
_INKED = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "embodichain",  # the same chart has the same ids
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    **dict.fromkeys(_INKED, _INK),
}

Numbers = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Series:
    """A line.

    Attributes:
        x, y: coordinates of its points, in the order of x.
        low, high: edges of a band around it, as long as y; empty: none.
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
        series: the lines; points that are not finite are left out.
        is_share: y is a share, from 0 to 100 %.
    """
    lines = [one for one in map(_thin, series) if len(one.x)]
    if not lines:
        return f'<div class="plot"><b>{escape(title)}: none</b></div>'
    with rc_context(_STYLE):
        svg = _svg(_figure(lines, x_label, is_share))
    legend = _legend([one.name for one in lines]) if len(lines) > 1 else ""
    label = escape(title)
    return f'<div class="plot"><b>{label}</b><svg class="chart" role="img" aria-label="{label}"{svg}{legend}</div>'


def number(value: float) -> str:
    """Return a number for people: 1.2M, 350k, 0.03."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{suffix}"
    return f"{value:.3g}"


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
    return Series(one.name, x, y, low, high, one.has_points)


def _figure(lines: Sequence[Series], x_label: str, is_share: bool) -> Figure:
    figure = Figure(_SIZE)
    axes = figure.add_axes(_AXES)
    for i, one in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        marker = "o" if one.has_points or len(one.x) == 1 else ""
        axes.plot(one.x, one.y, color=colour, linewidth=1.8, marker=marker, markersize=5)
        if len(one.low):
            axes.fill_between(one.x, one.low, one.high, color=colour, alpha=0.18, linewidth=0)
    axes.set_xlabel(x_label)
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.locator_params(nbins=6)
    axes.xaxis.set_major_formatter(lambda x, _: number(x))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, 0) if is_share else lambda y, _: number(y))
    if is_share:
        axes.set_ylim(-0.02, 1.02)
    return figure


def _svg(figure: Figure) -> str:
    """Return a chart as an SVG element, without the beginning of its tag, in the page's colour and font."""
    file = io.StringIO()
    FigureCanvasSVG(figure).print_svg(file, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = re.sub(r"<style.*?</style>", "", file.getvalue(), flags=re.DOTALL)  # it would hold for the whole page
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # the same in all charts of a page
    text = text.replace(_INK, "currentColor").replace("'DejaVu Sans', sans-serif", "system-ui, sans-serif")
    return text[text.index(" viewBox=") :].rstrip()


def _legend(names: list[str]) -> str:
    marks = "".join(
        f'<span><i style="background:{COLOURS[i % len(COLOURS)]}"></i>{escape(name)}</span>'
        for i, name in enumerate(names)
    )
    return f'<div class="legend">{marks}</div>'
