"""Targets of the joint positions by hand. Shapes: N environments."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.utils import ConfigError
from tests.lab.legs import GO2, legs_env


def acting(**params: Any) -> LocomotionEnv:
    env = legs_env(2, {"actions": {"legs": {"func": "JointPositionTerm", "params": params}}})
    env.reset(seed=1)
    return env


def test_targets_are_the_initial_positions_plus_the_scaled_action() -> None:
    env = acting(scale=0.25)
    default = env.robot.body_data.default_qpos
    action = torch.linspace(-1.0, 1.0, 24).view(2, 12)
    env.step(action)
    torch.testing.assert_close(env.robot.get_qpos_target(), default + 0.25 * action)


def test_actions_are_clipped_to_the_limit_and_targets_to_nothing() -> None:
    env = acting(scale=0.5, limit=4.0)
    assert float(env.single_action_space.low.min()) == -4.0
    assert float(env.single_action_space.high.max()) == 4.0
    env.step(torch.full((2, 12), 9.0))
    torch.testing.assert_close(env.robot.get_qpos_target(), env.robot.body_data.default_qpos + 2.0)
    assert (env.robot.get_qpos_target() > env.robot.body_data.qpos_limits[..., 1]).any()


def test_zero_action_holds_the_initial_pose() -> None:
    env = acting()
    for _ in range(25):
        env.step(torch.zeros(2, 12))
    # The drives give way under the weight, by less than 0.25 rad.
    assert float((env.robot.get_qpos() - env.robot.body_data.default_qpos).abs().max()) < 0.25
    assert float(env.robot.base.get()[:, 2].min()) > 0.25


def test_part_moves_alone() -> None:
    robot = GO2 | {"control_parts": {"front": ["F.*"], "rear": ["R.*"]}}
    terms = {"front": {"func": "JointPositionTerm", "params": {"part_name": "front"}}}
    env = legs_env(1, {"actions": terms}, robot=robot)
    env.reset(seed=1)
    env.step(torch.ones(1, 6))
    moved = env.robot.get_qpos_target() - env.robot.body_data.default_qpos
    torch.testing.assert_close(moved, torch.tensor([[0.25] * 6 + [0.0] * 6]))


def test_map_for_export_has_names_offsets_and_factors() -> None:
    env = acting(scale=0.25)
    commands = env.action_manager.terms["legs"].command_map()
    assert commands is not None
    assert commands.names == env.robot.joint_names
    assert commands.meaning == "joint position, rad or m"
    action = torch.linspace(-1.0, 1.0, 12)
    targets = commands.offset + commands.factor * action
    env.step(action.expand(2, 12))
    torch.testing.assert_close(targets, env.robot.get_qpos_target()[0])


@pytest.mark.parametrize("params", [{"scale": 0.0}, {"limit": -1.0}, {"scale": "big"}])
def test_impossible_scale_is_an_error(params: dict[str, Any]) -> None:
    (name,) = params
    with pytest.raises(ConfigError, match=rf"^env.actions.legs.params.{name}: Input should be .*, got"):
        acting(**params)
