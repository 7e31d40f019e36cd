"""The README: short, and what it shows is what there is."""

from __future__ import annotations

import pytest

from embodichain.agents.rl.run_folder import print_summary
from tests.pages import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_readme_is_read_in_minutes() -> None:
    assert len(README.splitlines()) <= 120


def test_sample_has_the_lines_that_a_training_prints(capsys: pytest.CaptureFixture[str]) -> None:
    folder = "outputs/push_cube_quickstart_20261123_114239"
    summary = {
        "success_rate": 0.93,
        "success_interval_95": [0.886, 0.958],
        "episodes": 200,
        "metrics": {"distance_to_goal": 0.1301, "distance_to_goal_at_end": 0.0422},
        "train_seconds": 58.2,
        "wall_seconds": 75.6,
        "eval_seconds": 15.8,
        "render_seconds": 12.5,
        "env_steps": 737280,
        "peak_memory_mb": 599,
        "run_folder": folder,
        "checkpoint": f"{folder}/checkpoints/push_cube_quickstart_step_737280.pt",
        "video": f"{folder}/videos/main_cam_step_737280.mp4",
        "learning_curve": f"{folder}/learning_curve.png",
    }
    print_summary(summary)
    lines = capsys.readouterr().out.splitlines()
    for line in lines:
        start = line.removesuffix("none")  # a file that is not there
        assert f"\n    {start}" in README
