"""Inputs from raw measurements by hand, with NumPy alone. Shapes: N = 2 rows."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from embodichain.ext.export.formats import RUNNER, load_runner


def builder(**recipes: list[dict[str, Any]]) -> Any:
    inputs = {name: {"from": recipe} for name, recipe in recipes.items()}
    return load_runner().ObservationBuilder({"inputs": inputs, "memory": None, "action": {"size": 1}})


def test_constants_are_subtracted_before_the_history_is_kept() -> None:
    build = builder(x=[{"measurement": "pos"}, {"subtract": [1.0, 2.0]}, {"history": 2}])
    seen = [build({"pos": np.array([[t, t], [2.0 * t, 0.0]])})["x"].tolist() for t in (1, 2, 3)]
    assert seen == [
        [[0, -1, 0, -1], [1, -2, 1, -2]],  # the first stands for those before it
        [[0, -1, 1, 0], [1, -2, 3, -2]],
        [[1, 0, 2, 1], [3, -2, 5, -2]],
    ]
    build.reset(np.array([0]))
    assert build({"pos": np.full((2, 2), 9.0)})["x"].tolist() == [[8, 7, 8, 7], [5, -2, 8, 7]]


def test_last_action_is_zero_where_an_episode_begins() -> None:
    build = builder(a=[{"last_action": True}])
    given = {"pos": np.zeros((2, 1))}
    assert build(given)["a"].tolist() == [[0], [0]]
    build.last_action = np.array([[3.0], [4.0]], dtype=np.float32)
    build.reset(np.array([False, True]))
    assert build(given)["a"].tolist() == [[3], [0]]


def test_gait_clock_turns_with_the_steps() -> None:
    clock = {"command": "go", "cycles_per_step": 0.25, "standing_below": 0.1}
    build = builder(phase=[{"gait_clock": clock}])
    given = {"go": np.array([[0.5, 0.0], [0.05, 0.05]])}
    seen = [build(given)["phase"] for _ in range(5)]
    # a quarter turn a step: (sin, cos)
    for value, expected in zip(seen, [(0, 1), (1, 0), (0, -1), (-1, 0), (0, 1)], strict=True):
        assert value[0] == pytest.approx(expected, abs=1e-6)
        assert value[1].tolist() == [0, 0]  # |(0.05, 0.05)| = 0.07


def test_step_of_a_later_version_is_an_error() -> None:
    with pytest.raises(ValueError, match="'x': this runner does not know 'cubed'; export again"):
        builder(x=[{"cubed": True}])({"pos": np.zeros((1, 1))})


def test_builder_needs_numpy_alone() -> None:
    code = "import sys, onnx_runner; print('onnxruntime' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], cwd=RUNNER.parent, capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
