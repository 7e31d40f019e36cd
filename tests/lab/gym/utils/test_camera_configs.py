"""Cameras, lights, groups and datasets in an environment's config, in the shape that existing configs have."""

import importlib.util
from typing import Any

import pytest
import torch

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.sim.sensors import Camera, StereoCamera
from embodichain.utils import ConfigError, doors
from embodichain.utils.utility import load_json

E3 = [[-0.5, -0.5, 2], [0.5, 0.5, 2]]
BALL = {"shape": {"shape_type": "Sphere", "radius": 0.03}}
STEREO = {
    "sensor_type": "StereoCamera",
    "uid": "cam_high",
    "width": 960,
    "height": 540,
    "enable_mask": True,
    "enable_depth": True,
    "left_to_right_pos": [0.0597, 0, 0],
    "intrinsics": [453.9, 453.8, 469.8, 258.7],
    "intrinsics_right": [453.5, 453.3, 499.1, 297.7],
    "extrinsics": {"eye": [0.35, 0.01, 1.45], "target": [0.72, -0.05, 0.52], "up": [0.93, -0.0006, 0.37]},
}
WRIST = {
    "sensor_type": "Camera",
    "uid": "wrist_camera",
    "width": 640,
    "height": 480,
    "intrinsics": [90.0, 90.0, 64.0, 64.0],
    "extrinsics": {"parent": "ee_link", "pos": [-0.08, 0.0, 0.04], "quat": [0.153, 0.69, -0.69, -0.153]},
}


def term(func: str, uid: str, *links: str, **params: Any) -> dict[str, Any]:
    entity = {"uid": uid} | ({"link_names": [*links]} if links else {})
    return {"func": func, "params": {"entity_cfg": entity} | params}


def config() -> dict[str, Any]:
    data = load_json(doors.TASK_CONFIGS / "push_cube/gym_config.json")
    data["sensor"] = [STEREO, WRIST]
    lamp = {"uid": "light_1", "light_type": "point", "intensity": 50.0, "init_pos": [2, 0, 2], "radius": 10.0}
    data["light"] = {"direct": [lamp], "indirect": {"emission_light": {"color": [1, 1, 1], "intensity": 150}}}
    data["rigid_object_group"] = [{"uid": "balls", "rigid_objects": {"a": BALL, "b": BALL}}]
    material, colors = "randomize_visual_material", [[0.2, 0.2, 0.2], [1, 1, 1]]
    interval = {"mode": "interval", "interval_step": 10}
    data["env"]["events"] |= {
        "light": term("randomize_light", "light_1", position_range=E3, color_range=[[0.6] * 3, [1] * 3]) | interval,
        "glow": {"func": "randomize_emission_light", "params": {"intensity_range": [80, 150]}},
        "member": term(material, "balls_a", base_color_range=colors),
        "links": term(material, "Manipulator", ".*", base_color_range=colors),
        "floor": term(material, "default_plane"),
        "lens": term("randomize_camera_intrinsics", "cam_high", focal_x_range=[-50, 50]),
        "mount": term("randomize_camera_extrinsics", "wrist_camera", pos_range=E3),
        "paint": term("set_rigid_object_visual_material", "cube", mat_cfg={"base_color": [0, 0, 1], "roughness": 0.3}),
    }
    robot = {"type": "robot", "control_part": "arm", "offset": [0.0, 0.0, 0.025], "follow_eef": True}
    thing = {"type": "affordance", "obj_uid": "cube", "key": "grasp", "is_arena_coord": False, "follow_eef": "hand"}
    around = {"descriptor": {"all_sensors": [robot, thing]}, "y_interval": 0.05, "kpnts_number": 2}
    data["env"]["observations"] |= {
        "points": {"func": "compute_exteroception", "name": "exteroception", "params": around},
        "pose": term("get_sensor_pose_in_robot_frame", "cam_high") | {"name": "sensor/cam_high/pose"},
        "k": term("get_sensor_intrinsics", "cam_high", is_right=True),
    }
    return data


def test_config_with_cameras_lights_and_groups_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (Camera, StereoCamera):
        monkeypatch.setattr(cls, "get_data", lambda self: {})  # pictures of that size take their time
    data = config()
    env: EmbodiedEnv = build_env(data["id"], config_to_cfg(data | {"num_envs": 2}))
    obs, _ = env.reset(seed=1)
    # 3 lenses, 2 sources, 1 + 2 * 2 points
    assert obs["exteroception"].shape == (2, 30, 2)
    assert obs["sensor", "cam_high", "pose"].shape == (2, 4, 4)
    assert obs["k"][0, 0, 0] == pytest.approx(453.5)
    for _ in range(10):
        env.step(torch.zeros(2, 6))
    assert env.sim.get_rigid_object_group("balls").num_objects == 2


@pytest.mark.ext
def test_mistakes_in_terms_of_cameras_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    data = config()
    env = data["env"]
    env["events"]["light"]["params"]["entity_cfg"]["uid"] = "lamp_1"
    env["events"]["paint"]["params"]["mat_cfg"]["base_color"] = [2, 0, 0]
    wrong = {"func": "normalize_robot_joint_data", "mode": "modify", "name": "sensor/cam_high/colour"}
    env["observations"]["n"] = wrong
    env["dataset"] = {"lerobot": {"func": "LeRobotRecorder", "mode": "save", "params": {"use_video": True}}}
    data["env"]["sim_cfg"] = {"enable_rt": True}
    with pytest.raises(ConfigError) as caught:
        config_to_cfg(data)
    text = str(caught.value)
    for problem in (
        "env.events.light.params.entity_cfg.uid: no light 'lamp_1' in the scene.",
        "env.events.paint.params.mat_cfg.base_color",
        "env.observations.n.name: unknown entry 'sensor/cam_high/colour'. Did you mean 'sensor/cam_high/color'?",
        "env.dataset.lerobot.params.use_video: unknown parameter. Did you mean 'use_videos'?",
        "env.sim_cfg.enable_rt: ray tracing needs the package mujoco_warp: ",
    ):
        assert problem in text
