from __future__ import annotations

from typing import Any

import pytest
import torch

from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.utils import ConfigError
from tests.lab.scenes import BOX, CART, cart_cfg


def test_extensions_become_attributes_before_the_scene_is_made() -> None:
    env = EmbodiedEnv(cart_cfg(1, {"extensions": {"success_threshold": 0.07, "names": ["a"]}}))
    assert vars(env)["success_threshold"] == 0.07
    assert vars(env)["names"] == ["a"]


def test_background_is_static_whatever_its_config_says() -> None:
    table = {**BOX, "uid": "table", "init_pos": [2.0, 0.0, 3.0]}
    env = EmbodiedEnv(cart_cfg(1, background=[table]))
    env.reset()
    env.step(torch.zeros(1, 1))
    assert env.sim.get_rigid_object("table").pos.tolist() == [[2.0, 0.0, 3.0]]


def test_articulations_stand_beside_the_robot() -> None:
    other = {**CART, "uid": "other", "init_pos": [0.0, 2.0, 0.5]}
    del other["control_parts"]
    env = EmbodiedEnv(cart_cfg(2, articulation=[other]))
    assert env.sim.get_articulation("other").get_qpos().shape == (2, 2)
    obs, _ = env.reset()
    assert obs["robot", "qpos"].shape == (2, 2)


def test_base_observation_is_the_robots_positions_velocities_and_efforts() -> None:
    env = EmbodiedEnv(cart_cfg(2))
    obs, _ = env.reset()
    torch.testing.assert_close(obs["robot", "qpos"], torch.tensor([[-0.2, 0.07]] * 2))
    assert set(obs["robot"].keys()) == {"qpos", "qvel", "qf"}
    assert torch.equal(obs["robot", "qf"], env.robot.get_qf())


@pytest.mark.parametrize(
    ("chosen", "joints"),
    [
        ({}, [0]),  # there is an arm
        ({"control_parts": ["hand"]}, [1]),
        ({"control_parts": ["hand", "arm"]}, [1, 0]),
        ({"active_joint_ids": [1]}, [1]),
    ],
)
def test_actions_move_the_chosen_parts_or_joints(chosen: dict[str, Any], joints: list[int]) -> None:
    env = EmbodiedEnv(cart_cfg(2, chosen))
    assert env.active_joint_ids == joints
    env.reset()
    env.step(torch.ones(2, len(joints)))
    moved = env.robot.get_qpos_target() - torch.tensor([[-0.2, 0.07]])  # 0.1, the action's scale
    expected = torch.zeros(2, 2)
    expected[:, joints] = 0.1
    torch.testing.assert_close(moved, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"control_parts": ["amr"]}, r"env\.control_parts: unknown control part 'amr'\. Did you mean 'arm'"),
        ({"control_parts": []}, "env.control_parts: at least one is needed"),
        ({"active_joint_ids": [2]}, r"active_joint_ids: must be joints with drives, .*: 0 \(slider_to_cart\), 1 \("),
        ({"active_joint_ids": [0, 0]}, "each once"),
        ({"active_joint_ids": [0], "control_parts": ["arm"]}, "not together with control_parts"),
    ],
)
def test_part_or_joint_that_is_not_there_is_refused(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EmbodiedEnv(cart_cfg(2, chosen))


def test_environment_without_rewards_gives_zero() -> None:
    env = EmbodiedEnv(cart_cfg(2))
    env.reset()
    _, reward, terminated, truncated, info = env.step(torch.zeros(2, 1))
    assert reward.tolist() == [0.0, 0.0]
    assert info["rewards"] == {}
    assert not terminated.any()
    assert not truncated.any()


def test_environment_without_a_robot_is_refused() -> None:
    with pytest.raises(ConfigError, match="robot: required, but missing"):
        EmbodiedEnv(EmbodiedEnvCfg())


def test_caller_who_writes_into_the_results_of_a_step_does_not_change_the_next() -> None:
    env = EmbodiedEnv(cart_cfg(2))
    env.reset()
    _, _, _, truncated, info = env.step(torch.zeros(2, 1))
    truncated |= True
    info["fail"] |= True
    _, _, terminated, truncated, _ = env.step(torch.zeros(2, 1))
    assert not terminated.any()
    assert not truncated.any()
