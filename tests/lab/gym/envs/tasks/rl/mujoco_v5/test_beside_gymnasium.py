"""Gymnasium's MuJoCo tasks are the same on our physics: observations, rewards, ends and limits."""

from __future__ import annotations

import gymnasium as gym
import pytest

from embodichain.lab.gym.registry import get_env_spec
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


@pytest.mark.parametrize("task", ["HalfCheetah", "InvertedDoublePendulum", "Ant"])
def test_a_task_continues_bit_for_bit_where_a_checkpoint_left_it(task: str) -> None:
    assert_goes_on(lambda: env_of({"id": f"{task}V5RL", "max_episode_steps": 7}, 3), steps=10)


@pytest.mark.parametrize("task", [*TASKS, *LARGE_TASKS])
def test_a_task_has_gymnasiums_time_limit(task: str) -> None:
    assert get_env_spec(f"{task}V5RL").max_episode_steps == gym.spec(f"{task}-v5").max_episode_steps
