"""The benchmark of Gymnasium's tasks: what is stored, what is trained, and what is compared."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import gymnasium_curves
from benchmarks.gymnasium_curves import SETTINGS, compare, curves_of, last_returns, read_records, train_missing


def record(learner: str, seed: int, returns: Sequence[float], **changes: Any) -> dict[str, Any]:
    points = [{"step": 50_000 * (i + 1), "return": value, "length": 9.0} for i, value in enumerate(returns)]
    named = {"algorithm": "ppo", "task": "Hopper-v5", "learner": learner, "seed": seed}
    return named | {"settings": SETTINGS["ppo"], "points": points} | changes


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def test_of_equal_trainings_the_longest_is_read(tmp_path: Path) -> None:
    file = write(tmp_path / "r.jsonl", record("ours", 1, [1.0, 2.0]), record("ours", 1, [1.0, 2.0, 3.0]))
    assert [len(r["points"]) for r in read_records(file)] == [3]


def test_curves_of_other_settings_are_not_read(tmp_path: Path) -> None:
    other = record("ours", 2, [9.0], settings=SETTINGS["ppo"] | {"num_envs": 1})
    file = write(tmp_path / "r.jsonl", record("ours", 1, [1.0]), other)
    assert [r["seed"] for r in read_records(file)] == [1]


@pytest.mark.parametrize(
    ("steps", "ours", "sb3"),
    [
        (50_000, [1.0], [3.0, 6.0]),
        (100_000, [2.0], [4.0, 7.0]),
        (150_000, [2.0], [4.0, 7.0]),
        (200_000, [2.0], [4.0, 7.0]),
    ],
)
def test_curves_that_have_the_steps_are_compared_there_or_all_where_they_end(
    steps: int, ours: list[float], sb3: list[float]
) -> None:
    records = [record("ours", 1, [1.0, 2.0]), record("sb3", 1, [3.0, 4.0, 5.0]), record("sb3", 2, [6.0, 7.0])]
    finals = last_returns(curves_of(records, "ppo", "Hopper-v5", steps))
    expected = {"ours": np.array(ours), "sb3": np.array(sb3)}
    np.testing.assert_equal(finals, {learner: returns for learner, returns in expected.items() if returns.size})


def test_row_has_mean_range_and_difference(capsys: pytest.CaptureFixture[str]) -> None:
    records = [record("ours", s, [10.0 * s]) for s in (1, 2, 3)] + [record("sb3", s, [5.0]) for s in (1, 2, 3)]
    result = compare("ppo", "Hopper-v5", curves_of(records, "ppo", "Hopper-v5", 50_000))
    assert result is not None
    assert result["difference"] == pytest.approx(20.0 - 5.0)  # of the middle halves' means
    row = capsys.readouterr().out
    assert "50,000" in row
    assert "20 (10 to 30)" in row
    assert "5 (5 to 5)" in row


def test_only_missing_and_shorter_trainings_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "r.jsonl", record("ours", 1, [1.0, 2.0]), record("sb3", 1, [1.0]))
    started = []

    def run_child(module: str, arguments: Sequence[str]) -> list[dict[str, float]]:
        started.append((module, *arguments))
        return [{"step": 100_000, "return": 7.0, "length": 9.0}]

    monkeypatch.setattr(gymnasium_curves, "run_child", run_child)
    args = argparse.Namespace(algorithms=["ppo"], tasks=["Hopper-v5"], learners=["ours", "sb3"], seeds=[1], jobs=1)
    train_missing(argparse.Namespace(**vars(args), steps=100_000, results=file))
    # ours has 100,000 steps; Stable-Baselines3's training ended at 50,000
    job = ("--one", "ppo", "Hopper-v5", "sb3", "1", "--steps", "100000")
    assert started == [("benchmarks.gymnasium_curves", *job)]
    assert json.loads(file.read_text().splitlines()[-1])["points"] == [{"step": 100_000, "return": 7.0, "length": 9.0}]
