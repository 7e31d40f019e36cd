"""The curves in the page of a training."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from embodichain.agents.rl import train
from embodichain.agents.rl.trainer import live_curves, viewer
from embodichain.agents.rl.trainer.live_curves import Curve, LiveCurves
from tests.agents.rl.fakes import tiny_config, write_config

RETURN, EVAL_SUCCESS = "charts/episode_reward_avg_100", "eval/success_rate"


class FakeGui:
    """Keeps the charts that are added, by their titles."""

    def __init__(self) -> None:
        self.charts: dict[str, Any] = {}
        self.options: dict[str, Any] = {}

    def add_folder(self, name: str, visible: bool) -> Any:
        return nullcontext(SimpleNamespace())

    def add_uplot(self, data: Any, title: str, **options: Any) -> Any:
        self.charts[title], self.options[title] = SimpleNamespace(data=data), options
        return self.charts[title]

    def points(self) -> dict[str, list[tuple[float, float]]]:
        return {
            title: list(zip(*(values.tolist() for values in chart.data), strict=True))
            for title, chart in self.charts.items()
        }


@pytest.fixture
def gui() -> FakeGui:
    return FakeGui()


@pytest.fixture
def curves(gui: FakeGui) -> LiveCurves:
    return LiveCurves(SimpleNamespace(gui=gui))


def test_metric_is_a_chart_from_its_second_value_on(curves: LiveCurves, gui: FakeGui) -> None:
    curves.add(100, {RETURN: 1.0, "train/loss": 5.0, EVAL_SUCCESS: 0.25})
    curves.show(0.0)
    assert gui.points() == {}
    curves.add(200, {RETURN: 3.0})
    curves.show(2.0)
    assert gui.points() == {"return": [(100, 1), (200, 3)]}
    curves.add(300, {RETURN: 2.0, EVAL_SUCCESS: 0.5})
    curves.add(400, {RETURN: math.nan})
    curves.show(4.0)
    assert gui.points() == {
        "return": [(100, 1), (200, 3), (300, 2)],
        "eval success": [(100, 0.25), (300, 0.5)],  # only where it was evaluated
    }
    assert gui.options["eval success"]["scales"]["y"] == {"range": (0.0, 1.0)}
    assert gui.options["return"]["scales"] == {"x": {"time": False}}  # steps are no dates


def test_page_is_updated_once_a_second_at_most(curves: LiveCurves, gui: FakeGui) -> None:
    counts = []
    for step, now in enumerate((10.0, 10.5, 11.0, 11.9, 12.1)):
        curves.add(step, {RETURN: float(step)})
        curves.show(now)
        counts.append(len(gui.points().get("return", [])))
    assert counts == [0, 0, 3, 3, 5]


def test_long_curve_keeps_few_points_evenly_and_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_curves, "_MOST", 4)
    curve = Curve()
    seen = []
    for step in range(12):
        curve.add(step, step / 10)
        steps, values = curve.points()
        assert np.array_equal(values, steps / 10)
        seen.append(steps.tolist())
    assert seen[3] == [0, 1, 2, 3]
    assert seen[4] == [0, 2, 4]
    assert seen[7] == [0, 2, 4, 6, 7]
    assert seen[11] == [0, 4, 8, 11]


def test_training_with_an_open_page_has_the_curves_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    viser = pytest.importorskip("viser", reason="the extra viewer is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(viser.ViserServer, "get_clients", lambda server: {0: None})
    monkeypatch.setattr(viewer, "_PERIOD", 0.0)
    monkeypatch.setattr(viewer, "_SHARE", 1e9)  # an image after every step
    monkeypatch.setattr(live_curves, "_PERIOD", 0.0)
    made: dict[str, Any] = {}
    add = viser.GuiApi.add_uplot

    def keep(gui: Any, *args: Any, **kwargs: Any) -> Any:
        made[kwargs["title"]] = add(gui, *args, **kwargs)
        return made[kwargs["title"]]

    monkeypatch.setattr(viser.GuiApi, "add_uplot", keep)
    config = write_config(tmp_path, tiny_config(trainer__viewer=True, trainer__iterations=6))
    assert train.main(["--config", config, "max_episode_steps=2"]) == 0
    (metrics,) = tmp_path.glob("outputs/*/metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    logged = [(row["step"], row[RETURN]) for row in rows if RETURN in row]
    steps, values = made["return"].data
    # The page is updated between two steps: what the last iteration says comes too late.
    assert list(zip(steps.tolist(), values.tolist(), strict=True)) == logged[:-1]
