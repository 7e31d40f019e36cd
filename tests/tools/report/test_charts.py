"""Charts as SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from embodichain.tools.report.charts import Series, line_chart, number, ticks


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (-3, 7, [-2.0, 0.0, 2.0, 4.0, 6.0]),
        (0, 1_228_800, [0.0, 500_000.0, 1_000_000.0]),
        (0.011, 0.019, [0.012, 0.014, 0.016, 0.018]),
    ],
)
def test_ticks_are_round_and_inside(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


def test_numbers_are_short() -> None:
    assert [number(x) for x in (0.0301, 12, 1500, 1_228_800, -2e9)] == ["0.0301", "12", "1.5k", "1.229M", "-2G"]


def points(svg: str) -> list[list[tuple[float, float]]]:
    return [
        [tuple(map(float, pair.split(","))) for pair in line.split()]  # type: ignore[misc]
        for line in re.findall(r'<polyline points="([^"]*)"', svg)
    ]


def test_line_goes_through_its_points_and_the_page_cannot_be_broken_by_names() -> None:
    svg = line_chart(
        "a < b", [Series("<script>", [0, 50, 100], [0, 0.5, 1]), Series("two", [0, 100], [1, 1])], is_share=True
    )
    ET.fromstring(svg)
    assert "<script>" not in svg
    first, second = points(svg)
    (x0, y0), (x1, y1), (x2, y2) = first
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1)
    assert y1 == pytest.approx((y0 + y2) / 2, abs=0.1)
    assert y2 < y0  # upwards
    assert second[0][1] == second[1][1] == y2
    assert "100%" in svg


def test_what_is_not_finite_is_left_out_and_many_points_are_averaged() -> None:
    (line,) = points(line_chart("x", [Series("a", range(4), [1, float("nan"), float("inf"), 2])]))
    assert len(line) == 2
    (line,) = points(line_chart("x", [Series("a", range(5000), [0.0] * 5000)]))
    assert len(line) == 300
    assert len({y for _, y in line}) == 1


def test_band_and_single_point_and_nothing_are_drawn() -> None:
    svg = line_chart("x", [Series("a", [0, 1], [1, 2], low=[0, 1], high=[2, 3])])
    assert svg.count("<polygon") == 1
    assert line_chart("x", [Series("a", [7], [3])]).count("<circle") == 1
    ET.fromstring(empty := line_chart("reward terms", []))
    assert "reward terms: none" in empty
