"""Gymnasium's MuJoCo tasks are the same on our physics: observations, rewards, ends and limits."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
import torch

from embodichain.lab.gym.registry import get_env_spec
from embodichain.utils import ConfigError
from tests.lab.gym.envs.tasks.rl.mujoco_v5.beside_gymnasium import drive
from tests.lab.gym.envs.test_state import assert_goes_on
from tests.lab.scenes import env_of

# Observations and rewards come out as float32, whose rounding is 6e-8 of their size.
TOLERANCE = 1e-6
TASKS = [
    *("HalfCheetah", "Hopper", "Walker2d", "Swimmer"),
    *("InvertedPendulum", "InvertedDoublePendulum", "Reacher", "Pusher"),
]
LARGE_TASKS = ["Ant", "Humanoid", "HumanoidStandup"]
FALLING = {"Hopper", "Walker2d", "InvertedPendulum", "InvertedDoublePendulum", "Ant", "Humanoid"}
pytestmark = pytest.mark.filterwarnings("ignore:.*settotalmass")  # of Gymnasium's own files


@pytest.mark.e2e
@pytest.mark.parametrize("task", [*TASKS, *(pytest.param(task, marks=pytest.mark.learning) for task in LARGE_TASKS)])
def test_a_task_equals_gymnasiums_over_a_thousand_steps(task: str) -> None:
    found = drive(task, 1000)

    assert found.obs < TOLERANCE
    assert found.reward < TOLERANCE
    assert (found.terminated > 0) == (task in FALLING)
    assert (found.truncated > 0) == (task not in FALLING)


@pytest.mark.parametrize("task", LARGE_TASKS)
def test_a_large_task_equals_gymnasiums_over_a_hundred_steps(task: str) -> None:
    found = drive(task, 100)

    assert found.obs < TOLERANCE
    assert found.reward < TOLERANCE


ARGUMENTS: dict[str, dict[str, Any]] = {
    "HalfCheetah": {"forward_reward_weight": 2.0, "ctrl_cost_weight": 0.3},
    "Hopper": {"healthy_reward": 2, "healthy_z_range": [1.1, 1e9], "healthy_angle_range": [-0.1, 0.2]},
    "Walker2d": {"terminate_when_unhealthy": False, "healthy_reward": 0.5, "healthy_z_range": [0.9, 1.3]},
    "Pusher": {"reward_near_weight": 0.1, "reward_dist_weight": 2.0, "reward_control_weight": 0.3},
    "Ant": {"contact_cost_weight": 0.01, "contact_force_range": [-0.5, 0.5], "healthy_z_range": [0.5, 0.8]},
    "Humanoid": {"contact_cost_weight": 1e-3, "contact_cost_range": [-1e9, 2.0]},
    "HumanoidStandup": {"impact_cost_weight": 1e-3, "impact_cost_range": [-1e9, 5.0], "ctrl_cost_weight": 0.5},
}


@pytest.mark.e2e
@pytest.mark.parametrize("task", ARGUMENTS)
def test_a_task_with_other_arguments_equals_gymnasiums(task: str) -> None:
    found = drive(task, 60, **ARGUMENTS[task])

    assert found.obs < TOLERANCE
    assert found.reward < TOLERANCE


def test_standing_up_is_weighted_by_the_argument_that_gymnasium_does_not_use() -> None:
    one, half = (
        env_of({"id": "HumanoidStandupV5RL", "env": {"extensions": {"uph_cost_weight": weight}}}, 1)
        for weight in (1, 0.5)
    )
    terms = []
    for env in (one, half):
        env.reset(seed=1)
        terms.append(env.step(torch.zeros(1, 17))[4]["rewards"])
    assert torch.allclose(terms[0]["linup"], 2 * terms[1]["linup"])
    assert terms[0]["linup"] > 10
    assert all(torch.equal(terms[0][name], terms[1][name]) for name in ("quadctrl", "impact", "survive"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            {"exclude_current_positions_from_observation": False},
            r"unknown argument 'exclude_current_positions_from_observation'\. Known: ctrl_cost_weight, forward_",
        ),
        ({"ctrl_cost_wieght": 1.0}, r"unknown argument 'ctrl_cost_wieght'\. Did you mean 'ctrl_cost_weight'\?"),
        ({"healthy_z_range": [2.0, 0.7]}, r"must be \[lowest, highest\], .*, got \[2.0, 0.7\]"),
        ({"reset_noise_scale": -1}, "Input should be greater than or equal to 0, got -1"),
        ({"terminate_when_unhealthy": "no"}, "Input should be a valid boolean, got 'no'"),
    ],
)
def test_arguments_that_a_task_does_not_have_are_refused(arguments: dict[str, Any], problem: str) -> None:
    (name,) = arguments
    with pytest.raises(ConfigError, match=rf"^env\.extensions\.{name}: {problem}"):
        env_of({"id": "HopperV5RL", "env": {"extensions": arguments}}, 1)


@pytest.mark.parametrize("task", ["HalfCheetah", "InvertedDoublePendulum", "Ant"])
def test_a_task_continues_bit_for_bit_where_a_checkpoint_left_it(task: str) -> None:
    assert_goes_on(lambda: env_of({"id": f"{task}V5RL", "max_episode_steps": 7}, 3), steps=10)


@pytest.mark.parametrize("task", [*TASKS, *LARGE_TASKS])
def test_a_task_has_gymnasiums_time_limit(task: str) -> None:
    assert get_env_spec(f"{task}V5RL").max_episode_steps == gym.spec(f"{task}-v5").max_episode_steps
