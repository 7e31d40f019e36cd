"""Charts as SVG."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from embodichain.ext.report.page import COLOURS, Series, line_chart, number


def test_numbers_are_short() -> None:
    assert [number(x) for x in (0.0301, 12, 1500, 1_228_800, -2e9)] == ["0.0301", "12", "1.5k", "1.229M", "-2G"]


def svg_of(*arguments: Any, **options: Any) -> str:
    _, address = line_chart("x", *arguments, **options)
    return base64.b64decode(address.removeprefix("data:image/svg+xml;base64,")).decode()


def points(svg: str, colour: str = COLOURS[0]) -> list[tuple[float, float]]:
    """Return the points of the line of a colour, in units of the SVG, y downwards."""
    path = re.findall(rf'<path d="([^"]*)"[^>]*style="fill: none; stroke: {colour}', svg)[0]
    return [(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", path)]


def test_line_goes_through_its_points_and_names_break_nothing() -> None:
    svg = svg_of([Series("<script>", [0, 50, 100], [0, 0.5, 0.4]), Series("$b", [0, 100], [0.4, 0.4])], is_share=True)
    ET.fromstring(svg)
    assert "<script>" not in svg
    (x0, y0), (x1, y1), (x2, y2) = points(svg)
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1)
    assert y2 - y0 == pytest.approx(0.8 * (y1 - y0), abs=0.1)
    assert y1 < y0  # upwards
    assert [y for _, y in points(svg, COLOURS[1])] == pytest.approx([y2, y2])
    assert "100%" in svg


def test_infinite_points_are_left_out_and_many_averaged() -> None:
    assert len(points(svg_of([Series("a", range(4), [1, float("nan"), float("inf"), 2])]))) == 2
    wave = [float(i % 2) for i in range(6000)]  # 20 points into one: 0.5
    line = points(svg_of([Series("a", range(6000), wave)]))
    assert len({y for _, y in line}) == 1


def test_band_and_single_point_are_drawn_and_nothing_is_empty() -> None:
    svg = svg_of([Series("a", [0, 1], [1, 2], low=[0, 1], high=[2, 3])])
    assert svg.count("fill-opacity: 0.18") == 1
    assert re.search(rf"<use [^>]*fill: {COLOURS[0]}", svg_of([Series("a", [7], [3])]))
    assert line_chart("reward terms", []) == ("reward terms", "")
