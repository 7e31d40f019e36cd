"""Shapes: N environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.lab.scenes import env_of

CONFIG = Path(__file__).resolve().parents[5] / "configs/agents/rl/push_colored_cube/gym_config.json"


def make(**params: Any) -> EmbodiedEnv:
    data = load_json(CONFIG)
    data["sensor"] = []
    data["env"]["actions"]["plane"]["params"] |= params
    return env_of(data, 2)


def test_tool_moves_in_the_plane_by_scale_times_the_action_and_keeps_height_and_orientation() -> None:
    env = make()
    env.reset(seed=1)
    before = env.robot.get_eef_pose().clone()
    for _ in range(4):
        env.step(torch.tensor([[0.5, 1.0], [0.0, -1.0]]))
    for _ in range(6):  # the drives follow
        env.step(torch.zeros(2, 2))
    after = env.robot.get_eef_pose()
    # 4 steps of 0.02 m times (0.5, 1) and (0, -1)
    expected = torch.tensor([[0.04, 0.08, 0.0], [0.0, -0.08, 0.0]])
    torch.testing.assert_close(after[:, :3, 3] - before[:, :3, 3], expected, atol=3e-3, rtol=0)
    torch.testing.assert_close(after[:, :3, :3], before[:, :3, :3], atol=0.01, rtol=0)


def test_target_stays_within_its_bounds() -> None:
    env = make(high=[-0.57, 0.17])
    env.reset(seed=1)
    for _ in range(10):
        env.step(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    # 0.2 m further would be beyond -0.57 m
    torch.testing.assert_close(env.robot.get_eef_pose()[:, 0, 3], torch.full((2,), -0.57), atol=3e-3, rtol=0)


def test_target_begins_an_episode_where_the_tool_is() -> None:
    env = make()
    env.reset(seed=1)
    for _ in range(5):
        env.step(torch.ones(2, 2))
    env.reset()
    start = env.robot.get_eef_pose().clone()
    env.step(torch.zeros(2, 2))
    torch.testing.assert_close(env.robot.get_eef_pose()[:, :2, 3], start[:, :2, 3], atol=3e-3, rtol=0)


def test_bounds_without_room_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"params\.low: must be below 'high'"):
        make(low=[-0.5, 0.0], high=[-0.5, 0.1])


def test_a_robot_is_told_the_change_of_the_tools_place() -> None:
    (term,) = make(scale=0.05).action_manager.terms.values()
    found = term.command_map()
    assert found is not None
    assert (found.names, found.meaning) == (["x", "y"], "change of the tool's target: m")
    assert (found.offset + found.factor * torch.tensor([1.0, -2.0])).tolist() == pytest.approx([0.05, -0.1])


def make_in_space(**params: Any) -> EmbodiedEnv:
    data = load_json(CONFIG.parents[1] / "manipulate_cubes/gym_config.json") | {"sensor": []}
    data["env"]["actions"]["tool"]["params"] |= params
    return env_of(data, 2)


def test_tool_moves_in_space_by_scale_times_the_action_and_keeps_its_orientation() -> None:
    env = make_in_space()
    env.reset(seed=1)
    before = env.robot.get_eef_pose().clone()
    for _ in range(3):
        env.step(torch.tensor([[0.5, 1.0, 0.0, 1.0], [0.0, -1.0, -1.0, 1.0]]))
    for _ in range(6):  # the drives follow
        env.step(torch.tensor([[0.0, 0.0, 0.0, 1.0]] * 2))
    after = env.robot.get_eef_pose()
    # 3 steps of 0.03 m times (0.5, 1, 0) and (0, -1, -1)
    expected = torch.tensor([[0.045, 0.09, 0.0], [0.0, -0.09, -0.09]])
    torch.testing.assert_close(after[:, :3, 3] - before[:, :3, 3], expected, atol=3e-3, rtol=0)
    torch.testing.assert_close(after[:, :3, :3], before[:, :3, :3], atol=0.01, rtol=0)
