"""Evaluation with repeated actions, and the table beside published results."""

from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import dm_control
from benchmarks.dm_control import PUBLISHED, published_return, table_of
from embodichain.agents.rl.config.named import find_config
from embodichain.utils.utility import load_json


class CountingEnv:
    """Env 0 ends after 4 steps and env 1 after 6; a step pays the sum of the actions so far."""

    def __init__(self, cfg: Any) -> None:
        self.t, self.paid, self.num_envs = 0, torch.zeros(cfg.num_envs), cfg.num_envs

    def reset(self, seed: int) -> tuple[Tensor, dict[str, Any]]:
        return torch.zeros(self.num_envs), {}

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        self.t += 1
        self.paid = self.paid + action
        over = torch.tensor([self.t == 4, self.t == 6])
        return torch.full((2,), float(self.t)), self.paid, torch.zeros_like(over), over, {}

    def close(self) -> None:
        pass


class Counts:
    """Acts by the last observation, which is the number of steps."""

    def act(self, obs: Tensor) -> Tensor:
        return obs


def test_return_sums_rewards_of_repeated_actions_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dm_control, "EnvPoolEnv", CountingEnv)
    # Actions 0 0 2 2 4 4, rewards 0 0 2 4 8 12
    assert published_return(Counts(), "envpool:Walk-v1", 2) == [6.0, 26.0]  # type: ignore[arg-type]


def test_table_has_the_mean_and_range_of_the_seeds() -> None:
    rows = [{"return": r, "train_seconds": 9.0} for r in (4, 6)]
    assert table_of({"walker_run": rows}).splitlines()[-1] == "| walker_run | 261 | 517 | 5 (4 to 6) | 2 | 9 s |"


@pytest.mark.parametrize("name", ["quadruped_walk", "walker_run", "fish_swim"])
def test_shipped_configs_make_the_published_number_of_steps(name: str) -> None:
    trainer = load_json(find_config(name))["trainer"]
    decisions = trainer["iterations"] * trainer["num_envs"] * trainer["buffer_size"]
    assert decisions * dm_control.ACTION_REPEAT == 100_000
    assert trainer["gym_config"]["max_episode_steps"] * dm_control.ACTION_REPEAT == 1000
    assert name in PUBLISHED
