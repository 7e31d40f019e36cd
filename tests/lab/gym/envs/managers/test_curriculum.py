"""Curriculum terms by hand. Shapes: N environments."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs.managers.commands import UniformVelocityCommand
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.utils import ConfigError
from tests.lab.gym.envs.managers.test_command_manager import Goal
from tests.lab.legs import legs_data, legs_env


def widened(num_envs: int = 4, **params: Any) -> tuple[LocomotionEnv, UniformVelocityCommand]:
    curriculum = {"range": {"func": "command_range", "params": params}}
    env = legs_env(num_envs, {"curriculum": curriculum}, max_episode_steps=10)
    env.reset(seed=1)
    term = env.command_manager.get_term("base_velocity")
    assert isinstance(term, UniformVelocityCommand)
    return env, term


def end(env: LocomotionEnv, lengths: list[int]) -> float:
    """End episodes of these lengths, one for each environment from the first on; return the term's share."""
    env.elapsed_steps[: len(lengths)] = torch.tensor(lengths)
    env.curriculum_manager.end_episodes(env.all_env_ids[: len(lengths)])
    return float(env.curriculum_manager.metrics()["curriculum/range"][0])


def test_share_grows_with_long_episodes_and_shrinks_with_short_ones() -> None:
    env, term = widened(initial=0.2, step=0.4, long_share=0.8)
    assert float(term.range_scale) == pytest.approx(0.2)
    # Long are 8 of 10 steps. Each episode counts 0.4 / 4 = 0.1: up by 2, up by 3 and down by 1, down by 2.
    assert end(env, [8, 10]) == pytest.approx(0.4)
    assert end(env, [10, 10, 7, 9]) == pytest.approx(0.6)
    assert end(env, [1, 7]) == pytest.approx(0.4)
    assert float(term.range_scale) == pytest.approx(0.4)


def test_share_stays_between_the_initial_one_and_the_whole() -> None:
    env, _ = widened(initial=0.5, step=1.0)
    assert end(env, [1]) == pytest.approx(0.5)
    assert end(env, [10, 10, 10]) == pytest.approx(1.0)
    assert end(env, [10]) == pytest.approx(1.0)


def test_commands_of_the_next_episodes_are_within_the_share() -> None:
    env, term = widened(64, initial=0.25)
    env.reset(seed=2)
    assert float(term.command[:, 0].abs().max()) <= 0.25
    assert float(term.command[:, 0].abs().max()) > 0.2


def test_range_without_a_time_limit_is_an_error() -> None:
    message = r"^func: 'command_range' needs a time limit: set .*\nenv\.curriculum\.range$"
    cfg = config_to_cfg(legs_data({"curriculum": {"range": {"func": "command_range"}}}))
    cfg.max_episode_steps = None
    with pytest.raises(ConfigError, match=message):
        LocomotionEnv(cfg)


def test_command_without_ranges_is_an_error() -> None:
    goal = {"goal": {"func": Goal}, "base_velocity": {"func": "UniformVelocityCommand"}}
    curriculum = {"range": {"func": "command_range", "params": {"command": "goal"}}}
    with pytest.raises(ConfigError, match=r"^params.command: 'goal' has no ranges to widen: Goal"):
        legs_env(1, {"curriculum": curriculum, "commands": goal})
