"""Environments whose scene is one file. Shapes: N environments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym import registry as registration
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import SceneEnv
from embodichain.lab.gym.registry import make, register_env
from embodichain.utils import ConfigError
from tests.lab.gym.envs.test_state import assert_goes_on
from tests.lab.scene_files import RAIL, rail_env, rail_file
from tests.lab.scenes import env_of


def pushed(env: SceneEnv, obs: Any, action: Any, info: Any) -> Tensor:
    """A user's reward: the cart's velocity."""
    return env.qvel[:, 0].float()


@pytest.fixture
def own_task(tmp_path: Path) -> Iterator[str]:
    @register_env("OwnSceneRL", 3, override=True, default_cfg=lambda: config_to_cfg({"id": "OwnSceneRL"}))
    class OwnScene(SceneEnv):
        config_defaults = {**SceneEnv.config_defaults, "scene": rail_file(tmp_path)}
        reset_noise_scale = 0.1

        def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
            return self.qvel[:, 0].float()

    yield "OwnSceneRL"
    del registration._REGISTRY["OwnSceneRL"]


def test_the_action_is_the_actuators_control(tmp_path: Path) -> None:
    env = rail_env(tmp_path)
    env.reset()

    env.step(torch.tensor([[0.5], [5.0]]))  # the second is clipped to 1

    # 4 N per unit of control on 2 kg, four substeps of 0.005 s (Euler): v = 4 * 0.005 * 2 * control.
    assert env.sim.backend.ctrl.tolist() == [[0.5], [1.0]]
    assert env.qvel[:, 0].tolist() == pytest.approx([0.02, 0.04], rel=1e-4)
    assert env.single_action_space.low.tolist() == [-0.5]
    assert env.single_action_space.high.tolist() == [1.0]


def test_an_actuator_without_a_range_takes_any_action(tmp_path: Path) -> None:
    env = rail_env(tmp_path, text=RAIL.replace('ctrllimited="true" ctrlrange="-0.5 1"', ""))
    env.reset()

    env.step(torch.tensor([[0.5], [50.0]]))

    assert env.sim.backend.ctrl.tolist() == [[0.5], [50.0]]


def test_physics_equals_mujocos_on_the_file_bit_for_bit(tmp_path: Path) -> None:
    env = rail_env(tmp_path)
    env.reset()
    model = mujoco.MjModel.from_xml_string(RAIL)
    data = mujoco.MjData(model)

    for control in (1.0, -0.5, 0.25):
        env.step(torch.full((2, 1), control))
        data.ctrl[:] = control
        mujoco.mj_step(model, data, nstep=4)

    assert env.qpos[0].tolist() == data.qpos.tolist()
    assert env.qvel[1].tolist() == data.qvel.tolist()


def test_a_task_is_a_class_with_a_file_and_a_reward(own_task: str) -> None:
    env = make(own_task, num_envs=2)
    env.reset()

    _, reward, _, truncated, _ = env.step(torch.ones(2, 1))

    assert torch.equal(reward, env.qvel[:, 0].float())
    assert not truncated.any()
    assert env.step(torch.ones(2, 1))[3].tolist() == [False, False]
    assert env.step(torch.ones(2, 1))[3].tolist() == [True, True]  # three steps


def test_a_task_is_a_config_with_a_file_and_terms(tmp_path: Path) -> None:
    terms = {"push": {"func": f"{__name__}.pushed", "weight": 2.0}}
    data = {"id": "SceneRL", "scene": rail_file(tmp_path), "env": {"rewards": terms}}
    env = SceneEnv(config_to_cfg(data, allowed_imports=[__name__]))
    env.reset()

    _, reward, _, _, _ = env.step(torch.ones(1, 1))

    assert reward.item() == pytest.approx(2 * 0.04, rel=1e-4)


def test_first_states_are_the_files_with_noise(tmp_path: Path) -> None:
    text = RAIL.replace("</mujoco>", '<keyframe><key qpos="1 2" qvel="3 4"/></keyframe></mujoco>')
    env = rail_env(tmp_path, 200, text, env={"extensions": {"reset_noise_scale": 0.1}})
    env.reset()

    noise = torch.cat((env.qpos - torch.tensor([1.0, 2.0]), env.qvel - torch.tensor([3.0, 4.0])), dim=1)

    # 200 numbers uniform in [-0.1, 0.1): the mean is within 4 std / sqrt(200) = 4 * 0.0577 / 14.1 of 0.
    assert (noise.abs() <= 0.1).all()
    assert (noise.mean(dim=0).abs() < 0.0164).all()
    assert (noise.amax(dim=0) > 0.09).all()


def test_a_partial_reset_changes_its_own_rows_alone(own_task: str) -> None:
    env = make(own_task, num_envs=3)
    env.reset()
    env.step(torch.ones(3, 1))
    before = env.get_obs()

    obs, _ = env.reset(options={"reset_ids": [1]})

    changed = {name: (obs[name] != before[name]).any(dim=1).tolist() for name in ("qpos", "qvel")}
    assert set(map(tuple, changed.values())) == {(False, True, False)}


def test_scene_continues_bit_for_bit_from_a_checkpoint(own_task: str) -> None:
    assert_goes_on(lambda: make(own_task, num_envs=3))


def test_the_default_camera_follows_the_body_that_moves(tmp_path: Path) -> None:
    env = rail_env(tmp_path)

    assert env.followed_uid == "cart"
    assert env.sim.get_body("cart").get_local_pose().tolist() == [[0, 0, 1, 1, 0, 0, 0]] * 2
    assert env.sim.get_body("cart").bodies == [1, 2]


def test_bodies_can_be_observed_by_their_names(tmp_path: Path) -> None:
    term = {"func": "get_object_pose", "params": {"entity_cfg": {"uid": "pendulum"}, "to_matrix": False}}

    env = rail_env(tmp_path, env={"observations": {"pendulum": term}})

    assert env.reset()[0]["pendulum"].tolist() == [[0, 0, 1, 1, 0, 0, 0]] * 2


def test_a_term_about_a_robot_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^SceneEnv: the scene of a file has no robot") as error:
        rail_env(tmp_path, env={"observations": {"joints": {"func": "joint_pos_rel"}}})

    assert "\n" not in str(error.value)


@pytest.mark.skipif(os.environ.get("MUJOCO_GL") == "disable", reason="needs OpenGL without a screen")
def test_a_cameras_images_are_observed(tmp_path: Path) -> None:
    camera = {"uid": "eye", "sensor_type": "Camera", "width": 8, "height": 6, "intrinsics": [8, 8, 4, 3]}
    camera["extrinsics"] = {"eye": [0, -0.5, 1], "target": [0, 0, 1]}
    env = rail_env(tmp_path, 1, sensor=[camera])

    image = env.reset()[0]["sensor", "eye", "color"]

    assert image.shape == (1, 6, 8, 3)
    assert np.ptp(image.numpy()) > 0  # the cart is in it


def test_a_config_of_a_scene_survives_its_file(tmp_path: Path) -> None:
    env = rail_env(tmp_path, env={"sim_steps_per_control": 7})

    again = env_of(env.config_data(), 2)

    assert again.cfg == env.cfg
