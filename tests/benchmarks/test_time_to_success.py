"""The curve of a variant, measured in this process."""

import json
from pathlib import Path

import pytest

from benchmarks import time_to_success
from embodichain.utils.device import torch_threads

CONFIGS = Path(__file__).resolve().parents[2] / "configs/agents/rl"


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        ("basic/cart_pole/train_config_quickstart.json", ["algorithm.cfg.batch_size=8", "algorithm.cfg.n_epochs=1"]),
        ("reach/train_config_sac.json", ["algorithm.cfg.batch_size=8", "algorithm.cfg.learning_starts=0"]),
    ],
)
def test_policy_is_evaluated_every_so_many_steps_with_the_seconds_until_then(
    config: str, changes: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time_to_success, "EVAL_EPISODES", 2)
    sizes = ["trainer.num_envs=2", "trainer.buffer_size=4", "trainer.num_eval_envs=2"]
    with torch_threads(1):
        time_to_success.train(str(CONFIGS / config), [*sizes, *changes], seed=1, steps=32, every=16)
    points = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [point["step"] for point in points] == [16, 32]
    assert 0 < points[0]["seconds"] < points[1]["seconds"]
    assert all(0 <= point["success"] <= 1 for point in points)


def test_success_counts_from_the_first_of_two_evaluations_in_a_row() -> None:
    curve = [0.95, 0.5, 0.9, 0.92]
    points = [{"step": 10.0 * i, "seconds": float(i), "success": success} for i, success in enumerate(curve)]
    assert time_to_success.time_to(points, 0.9) == (20.0, 2.0)
    assert time_to_success.time_to(points, 0.95) == (float("inf"), float("inf"))
