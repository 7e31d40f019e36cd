from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.image import imread

from embodichain.agents.rl.metrics.learning_curve import draw_learning_curve

ROW = {"step": 8, "wall_time": 0.5, "charts/episode_reward_avg_100": 1.0, "charts/success_rate_avg_100": 0.5}


@pytest.mark.e2e
@pytest.mark.parametrize(
    "rows",
    [
        [],  # stopped in the first iteration
        [{"step": 8, "wall_time": 0.5}],  # no episode has ended yet
        [ROW],
        [ROW, ROW | {"step": 16, "eval/success_rate": 1.0}],
        [ROW | {"step": 8 * i, "wall_time": float(i)} for i in range(1, 12)],
        [ROW | {"charts/episode_reward_avg_100": float("nan")}, ROW | {"step": 16}],
    ],
)
def test_picture_is_drawn_of_any_number_of_iterations(tmp_path: Path, rows: list[dict[str, float]]) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    draw_learning_curve(metrics, tmp_path / "curve.png", "push_cube_2")
    picture = imread(tmp_path / "curve.png")
    assert picture.shape[:2] == (480, 1200)  # 10 x 4 inches at 120 dpi


@pytest.mark.e2e
def test_curves_are_in_the_picture(tmp_path: Path) -> None:
    pictures = []
    for name, value in (("a", 0.0), ("b", 1.0)):
        rows = [ROW | {"step": 8 * i, "charts/success_rate_avg_100": value} for i in range(1, 3)]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        draw_learning_curve(tmp_path / name, tmp_path / f"{name}.png", "title")
        pictures.append(imread(tmp_path / f"{name}.png"))
    left, right = ((pictures[0][:, half] != pictures[1][:, half]).any() for half in (slice(0, 600), slice(600, 1200)))
    assert (left, right) == (False, True)  # the returns are the same, the success is not
