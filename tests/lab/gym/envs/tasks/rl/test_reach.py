from __future__ import annotations

from pathlib import Path

import pytest
import torch

from embodichain.lab.gym.envs.tasks.rl import ReachEnv
from embodichain.lab.sim.math import matrix_from_euler
from embodichain.utils.utility import load_json
from tests.lab.scenes import env_of

CONFIG = Path(__file__).resolve().parents[6] / "configs/agents/rl/reach/gym_config.json"


@pytest.fixture(scope="module")
def env() -> ReachEnv:
    env = env_of(load_json(CONFIG), 2)
    assert isinstance(env, ReachEnv)
    env.reset(seed=1)
    return env


def set_goals(env: ReachEnv, offsets: list[list[float]], turns: list[float]) -> None:
    """Put the goals beside the tools: by an offset (m), and by a turn (rad) about the world's z axis."""
    goal = env.robot.get_eef_pose().clone()
    goal[:, :3, 3] += torch.tensor(offsets)
    goal[:, :3, :3] = matrix_from_euler(torch.tensor([[0.0, 0.0, turn] for turn in turns])) @ goal[:, :3, :3]
    env.goal_pose = goal


def test_tool_within_both_thresholds_is_success(env: ReachEnv) -> None:
    # 0.009 m and 0.04 rad are inside of 0.01 m and 0.05 rad; 0.06 rad is not.
    set_goals(env, [[0.009, 0.0, 0.0], [0.0, 0.0, 0.0]], [0.04, -0.06])
    success, fail, metrics = env.compute_task_state()
    assert success.tolist() == [True, False]
    assert not fail.any()
    torch.testing.assert_close(metrics["distance_to_goal"], torch.tensor([0.009, 0.0]), atol=1e-5, rtol=0)
    torch.testing.assert_close(metrics["angle_to_goal"], torch.tensor([0.04, 0.06]), atol=1e-4, rtol=0)


def test_observation_has_the_way_to_the_goal_and_every_step_costs_by_it(env: ReachEnv) -> None:
    set_goals(env, [[0.1, 0.0, -0.2], [0.0, 0.0, 0.0]], [0.0, 0.5])
    obs = env.get_obs()
    expected = torch.tensor([[0.1, 0, -0.2, 0, 0, 0], [0, 0, 0, 0, 0, 0.5]])
    torch.testing.assert_close(obs["task", "pose_error"], expected, atol=1e-5, rtol=0)
    info = env.get_info()
    env.get_reward(obs, torch.zeros(2, 6), info)
    # -tanh(3 * sqrt(0.05)) and -tanh(3 * 0.2 * 0.5)
    torch.testing.assert_close(info["rewards"]["closeness"], torch.tensor([-0.58553, -0.29131]), atol=1e-4, rtol=0)


def test_goal_is_shown_by_three_bars_that_begin_at_it(env: ReachEnv) -> None:
    env.reset(seed=3)
    rows = [int(env.sim.model.body(f"goal_{axis}").mocapid[0]) for axis in "xyz"]
    middles = env.sim.backend.read("mocap_pos")[:, rows]
    # Half of 0.08 m along each of the goal's axes.
    expected = env.goal_pose[:, None, :3, 3] + 0.04 * env.goal_pose[:, :3, :3].transpose(1, 2)
    torch.testing.assert_close(middles, expected, atol=1e-6, rtol=0)
