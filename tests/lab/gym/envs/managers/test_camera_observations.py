"""Shapes: N environments, P points."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from embodichain.ext.gymnasium.vector_env import GymnasiumVectorEnv
from embodichain.lab.gym.envs.managers.cfg import SceneEntityCfg
from embodichain.lab.gym.envs.managers.observations import (
    ExteroceptionSource,
    compute_exteroception,
    compute_semantic_mask,
    get_sensor_intrinsics,
    get_sensor_pose_in_robot_frame,
)
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.lab.sim.sensors import Camera
from embodichain.utils.observations import flatten_dict_observation
from tests.lab.scenes import BOX, CART, cart_cfg

needs_gl = pytest.mark.skipif(os.environ.get("MUJOCO_GL") == "disable", reason="needs OpenGL without a screen")

# Looks along -x at the cart: right in the image is +y, down is -z.
CAMERA: dict[str, Any] = {
    "uid": "cam",
    "width": 64,
    "height": 48,
    "intrinsics": [60, 60, 32, 24],
    "enable_mask": True,
    "enable_depth": True,
    "extrinsics": {"eye": [3, 0, 1], "target": [0, 0, 1]},
}
STEREO = CAMERA | {"uid": "two", "sensor_type": "StereoCamera", "intrinsics_right": [50, 50, 32, 24]}
STEREO |= {"left_to_right_pos": [0.1, 0, 0]}


def make(num_envs: int = 2, sensors: Any = (CAMERA,)) -> CartPoleEnv:
    robot = CART | {"init_rot": [0.0, 0.0, 90.0]}
    return CartPoleEnv(cart_cfg(num_envs, rigid_object=[BOX], sensor=list(sensors), robot=robot))


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> CartPoleEnv:
    monkeypatch.setattr(Camera, "get_data", lambda self: {})
    return make(sensors=(CAMERA, STEREO))


CAM, TWO = SceneEntityCfg("cam"), SceneEntityCfg("two")


def test_pose_in_the_robots_frame_is_the_cameras_seen_from_its_base(env: CartPoleEnv) -> None:
    pose = get_sensor_pose_in_robot_frame(env, CAM)
    # the base is at (0, 0, 0.5), turned by 90 degrees about z: the world's (3, 0, 1) is its (0, -3, 0.5)
    assert pose.shape == (2, 4, 4)
    assert pose[0, :3, 3].tolist() == pytest.approx([0, -3, 0.5], abs=1e-6)
    # the view is along the world's -x, which is the base's +y
    assert (-pose[0, :3, 2]).tolist() == pytest.approx([0, 1, 0], abs=1e-6)
    right = get_sensor_pose_in_robot_frame(env, TWO, "Cart", is_right=True)
    assert right[0, :3, 3].tolist() == pytest.approx([0.1, -3, 0.5], abs=1e-6)


def test_intrinsics_are_those_of_either_lens(env: CartPoleEnv) -> None:
    assert get_sensor_intrinsics(env, CAM)[1].tolist() == [[60, 0, 32], [0, 60, 24], [0, 0, 1]]
    assert get_sensor_intrinsics(env, TWO, is_right=True)[0, 0, 0] == 50


def test_points_are_where_the_pinhole_puts_them(env: CartPoleEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "affordance_datas", {"handle": torch.eye(4)}, raising=False)
    pose = torch.tensor([[0.0, 0.5, 1.25, 1, 0, 0, 0]]).repeat(2, 1)
    env.sim.get_rigid_object("box").set_local_pose(pose)
    source = ExteroceptionSource(type="affordance", obj_uid="box", key="handle")
    points = compute_exteroception(env, {"cam": [source]}, x_interval=1.0, y_interval=0.3, kpnts_number=2)
    assert points.shape == (2, 5, 2)
    # depth 3: u = 32 + 60 * 0.5 / 3 = 42 of 64, v = 24 - 60 * 0.25 / 3 = 19 of 48
    expected = [[42 / 64, 19 / 48]]
    # x of -1 and 1: depths 4 and 2
    expected += [[(32 + 60 * 0.5 / d) / 64, (24 - 60 * 0.25 / d) / 48] for d in (4, 2)]
    # y of -0.3 and 0.3
    expected += [[(32 + 20 * y) / 64, 19 / 48] for y in (0.2, 0.8)]
    assert torch.allclose(points[0], torch.tensor(expected), atol=1e-5)


def test_points_beyond_the_edge_are_on_it_and_cameras_follow_each_other(env: CartPoleEnv) -> None:
    far = torch.tensor([[0.0, 9.0, 1.0, 1, 0, 0, 0]]).repeat(2, 1)
    env.sim.get_rigid_object("box").set_local_pose(far)
    source = ExteroceptionSource(type="affordance", obj_uid="box", key="no such key")
    points = compute_exteroception(env, {"all_sensors": [source]}, kpnts_number=1)
    # one camera and two lenses, 3 points each
    assert points.shape == (2, 9, 2)
    assert (points[..., 0] == 1.0).all()


@needs_gl
def test_semantic_mask_tells_background_foreground_and_robot_apart() -> None:
    env = make()
    pose = torch.tensor([[0.0, 0.5, 1.25, 1, 0, 0, 0]]).repeat(2, 1)
    env.sim.get_rigid_object("box").set_local_pose(pose)
    mask = compute_semantic_mask(env, CAM, ["box"])
    assert (mask.shape, mask.dtype) == ((2, 48, 64, 3), torch.uint8)
    assert (mask.sum(dim=-1) == 1).all()
    assert mask[0, 19, 42].tolist() == [0, 1, 0]
    assert mask[0, 0, 0].tolist() == [1, 0, 0]
    assert mask[..., 2].any()
    env.close()


@needs_gl
def test_images_are_observed_beside_the_flat_vector_and_spaces_say_what_they_are() -> None:
    env = make()
    obs, _ = env.reset(seed=1)
    images = obs["sensor", "cam"]
    assert {str(k): (tuple(v.shape), v.dtype) for k, v in images.items()} == {
        "color": ((2, 48, 64, 3), torch.uint8),
        "depth": ((2, 48, 64, 1), torch.float32),
        "mask": ((2, 48, 64, 1), torch.int32),
    }
    assert flatten_dict_observation(obs).shape == (2, 6)
    assert env.flattened_observation_space.shape == (6,)
    envs = GymnasiumVectorEnv(env)
    arrays, _ = envs.reset(seed=1)
    assert envs.observation_space.contains(arrays)
    env.close()


@needs_gl
def test_images_after_a_step_are_of_the_state_after_it_and_final_ones_of_the_one_before_the_reset() -> None:
    env = make(num_envs=1)
    env.reset(seed=1)
    env.robot.set_qpos(env.robot.get_qpos() * 0 + torch.tensor([0.0, 1.0]), target=False)
    obs, _, terminated, _, info = env.step(torch.zeros(1, 1))
    assert terminated.all()  # the pole lies beyond the angle of failure
    now, final = obs["sensor", "cam", "mask"], info["final_obs"]["sensor", "cam", "mask"]
    assert not torch.equal(now, final)
    assert torch.equal(env.get_obs()["sensor", "cam", "mask"], now)
    env.close()
