"""Line charts for the pages: SVG images drawn by matplotlib, for light and dark pages."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
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
_INKED = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color", "text.color")
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "embodichain",  # the same chart is the same file
    "font.size": 9,
    "legend.frameon": False,
    "text.parse_math": False,  # names are no formulas
    **dict.fromkeys(_INKED, "#7d8590"),  # readable on white and on black
}

Numbers = Sequence[float] | np.ndarray
Chart = tuple[str, str]
"""A title and the image as a data URI; "" without a point."""


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


def line_chart(
    title: str, series: Sequence[Series], x_label: str = "environment steps", is_share: bool = False
) -> Chart:
    """Return a chart, with a legend where there are several lines.

    Args:
        series: the lines; points that are not finite are left out.
        is_share: y is a share, from 0 to 100 %.
    """
    lines = [one for one in map(_thin, series) if len(one.x)]
    if not lines:
        return title, ""
    file = io.StringIO()
    with rc_context(_STYLE):
        figure = Figure((6.4, 3.2), layout="constrained", facecolor="none")
        axes = figure.add_subplot(facecolor="none")
        for i, one in enumerate(lines):
            colour = COLOURS[i % len(COLOURS)]
            marker = "o" if one.has_points or len(one.x) == 1 else ""
            axes.plot(one.x, one.y, color=colour, marker=marker, markersize=5, label=one.name)
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
        if len(lines) > 1:
            axes.legend()
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    return title, "data:image/svg+xml;base64," + base64.b64encode(file.getvalue().encode()).decode()


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
