from __future__ import annotations

import random
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from embodichain.ext.gymnasium.cfg import GymnasiumEnvCfg
from embodichain.ext.gymnasium.gymnasium_env import ForeignGenerators, GymnasiumEnv
from tests.ext.gymnasium.scripted import registered


def draws() -> list[float]:
    return [random.random(), random.gauss(0, 1), float(np.random.rand()), float(torch.rand(()))]  # noqa: NPY002


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002
    torch.manual_seed(number)


@pytest.mark.parametrize("seeds", [False, True])
def test_foreign_code_leaves_the_learners_draws(seeds: bool) -> None:
    seed(1)
    expected = [draws() for _ in range(5)]
    generators = ForeignGenerators()
    seed(1)
    got = []
    for _ in range(5):
        got.append(draws())
        with generators:
            if seeds:
                seed(7)
            draws()
    # Python's generator loses 64 bits where the learner has drawn from it; random.gauss keeps its second number.
    assert [row[2:] for row in got] == [row[2:] for row in expected]
    assert len({value for row in got for value in row}) == 20


def test_foreign_draws_continue_and_can_be_seeded() -> None:
    generators = ForeignGenerators()

    def foreign() -> list[list[float]]:
        rows = []
        for _ in range(4):
            with generators:
                rows.append(draws())
            draws()
        return rows

    generators.seed(3)
    first = foreign()
    generators.seed(3)
    assert foreign() == first
    assert len({value for row in first for value in row}) == 16
    # The first draws of generators that are seeded with 3.
    assert first[0][0] == random.Random(3).random()
    assert first[0][3] == float(torch.rand((), generator=torch.Generator().manual_seed(3)))


class _Seeding(gym.Env[Any, Any]):
    """Seeds all global generators in each reset, and observes a number of each."""

    observation_space = gym.spaces.Box(-9, 9, (4,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        globals()["seed"](0)
        return np.array(draws()), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array(draws()), 0.0, False, False, {}


def test_global_seeding_leaves_the_exploration_alone() -> None:
    with registered("Seeding-v0", _Seeding, max_episode_steps=2):
        env = GymnasiumEnv(GymnasiumEnvCfg("gymnasium:Seeding-v0", num_envs=2))
        seed(1)
        env.reset(seed=1)
        noise = torch.stack([(torch.rand(()), env.step(torch.zeros(2, 1)))[0] for _ in range(6)])
        env.close()
    seed(1)
    assert torch.equal(noise, torch.stack([torch.rand(()) for _ in range(6)]))
