"""Curves of a training in the browser, while it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

_SHOWN = {
    "charts/episode_reward_avg_100": ("return", False),
    "charts/success_rate_avg_100": ("success", True),
    "eval/avg_reward": ("eval return", False),
    "eval/success_rate": ("eval success", True),
}
"""By tag: the chart's title, and whether its values are from 0 to 1."""

_PERIOD = 1.0  # s between two updates of the page at least
_MOST = 400  # points of a curve
_HEIGHT = 160  # pixels
_PADDING = 12  # pixels above and to the right, where half of the last number beside an axis is


class Curve:
    """A metric by environment steps; of many points, every second, fourth, eighth ... is kept, and the last one."""

    def __init__(self) -> None:
        self._kept: list[tuple[float, float]] = []
        self._last = (0.0, 0.0)
        self._count = 0
        self._stride = 1

    def add(self, step: int, value: float) -> None:
        """Add a point behind the others."""
        self._last = (float(step), value)
        if self._count % self._stride == 0:
            self._kept.append(self._last)
        self._count += 1
        if len(self._kept) > _MOST:
            del self._kept[1::2]
            self._stride *= 2

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps and the values."""
        points = self._kept if self._kept[-1] == self._last else [*self._kept, self._last]
        steps, values = np.array(points).T
        return steps, values


class LiveCurves:
    """Charts of return and success, of the training and of its evaluations, in a ``viser.ViserServer``.

    A chart appears with its metric's second value.
    """

    def __init__(self, server: Any) -> None:
        self._gui = server.gui
        self._folder = self._gui.add_folder("Curves, by environment steps", visible=False)
        self._curves: dict[str, Curve] = {}
        self._charts: dict[str, Any] = {}
        self._changed: set[str] = set()
        self._next = 0.0

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Store an iteration's metrics for :meth:`show`."""
        for tag in _SHOWN.keys() & metrics.keys():
            if math.isfinite(metrics[tag]):
                self._curves.setdefault(tag, Curve()).add(step, metrics[tag])
                self._changed.add(tag)

    def show(self, now: float) -> None:
        """Update the page, if there is something new and the last update is long enough ago; ``now`` in seconds."""
        if now < self._next or not self._changed:
            return
        self._next = now + _PERIOD
        for tag in [tag for tag in _SHOWN if tag in self._changed]:
            data = self._curves[tag].points()
            if tag in self._charts:
                self._charts[tag].data = data
            elif len(data[0]) > 1:
                self._charts[tag] = self._add_chart(tag, data)
        self._changed.clear()

    def _add_chart(self, tag: str, data: tuple[np.ndarray, np.ndarray]) -> Any:
        title, is_share = _SHOWN[tag]
        scales: dict[str, Any] = {"x": {"time": False}}
        if is_share:
            scales["y"] = {"range": (0.0, 1.0)}
        self._folder.visible = True
        with self._folder:
            return self._gui.add_uplot(
                data,
                series=({"label": "step"}, {"label": title, "stroke": "#4c78a8", "width": 2.0}),
                title=title,
                scales=scales,
                legend={"show": False},
                height=_HEIGHT,
                padding=(_PADDING, _PADDING, 0, 0),
                order=float(list(_SHOWN).index(tag)),
            )
