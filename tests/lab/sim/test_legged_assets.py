"""The bundled robots with legs: published numbers, mirrored sides, and a default pose in which they stand."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from embodichain.lab.sim.assets import asset_spec
from embodichain.lab.sim.cfg import JointDrivePropertiesCfg, RobotCfg, SimulationManagerCfg
from embodichain.lab.sim.model.scene import SceneBuilder

LEGS = ("FL", "FR", "RL", "RR")
FEET = {"go2": [f"{leg}_foot" for leg in LEGS], "g1": ["left_ankle_roll_link", "right_ankle_roll_link"]}
GAINS = {
    "go2": JointDrivePropertiesCfg(stiffness=40.0, damping=1.0),
    "g1": JointDrivePropertiesCfg(
        stiffness={".*_hip_.*|waist.*": 200.0, ".*_knee_.*": 300.0, ".*_ankle_.*": 200.0, ".*_(shoulder|elbow)_.*": 40},
        damping={".*_hip_.*|waist.*": 3.0, ".*_knee_.*": 5.0, ".*_ankle_.*": 1.5, ".*_(shoulder|elbow)_.*": 1.0},
    ),
}


def default_pose(name: str) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """The asset alone, in its keyframe."""
    model = asset_spec(name).compile()
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_forward(model, data)
    return model, data


def torque(model: mujoco.MjModel, joint: str) -> float:
    return float(model.jnt_actfrcrange[model.joint(joint).id, 1])


def test_go2_has_the_published_lengths_masses_ranges_and_torques() -> None:
    model, data = default_pose("go2")
    for leg in LEGS:
        hip, thigh, calf, foot = (data.body(f"{leg}_{link}").xpos for link in ("hip", "thigh", "calf", "foot"))
        lengths = [np.linalg.norm(b - a) for a, b in ((hip, thigh), (thigh, calf), (calf, foot))]
        assert lengths == pytest.approx([0.0955, 0.213, 0.213])
        assert [model.body(f"{leg}_{link}").mass[0] for link in ("hip", "thigh", "calf", "foot")] == [
            *(0.678, 1.152, 0.154, 0.04)
        ]
        assert model.jnt_range[model.joint(f"{leg}_calf_joint").id].tolist() == [-2.7227, -0.83776]
        torques = [torque(model, f"{leg}_{joint}_joint") for joint in ("hip", "thigh", "calf")]
        assert torques == [23.7, 23.7, 45.43]
    # 6.921 + 4 (0.678 + 1.152 + 0.154 + 0.04)
    assert model.body_mass.sum() == pytest.approx(15.017)


def test_g1_has_the_published_lengths_masses_and_torques() -> None:
    model, data = default_pose("g1")
    assert model.nu == 0
    assert model.njnt == 1 + 19
    # The maker's 29 joints in 19: what is fixed adds its mass to the link that carries it.
    assert model.body_mass.sum() == pytest.approx(33.341, abs=1e-3)
    knee, ankle = data.body("left_knee_link").xpos, data.body("left_ankle_pitch_link").xpos
    assert np.linalg.norm(knee - ankle) == pytest.approx(0.30001, abs=1e-6)
    torques = {joint: torque(model, f"right_{joint}_joint") for joint in ("hip_pitch", "knee", "ankle_roll")}
    assert torques == {"hip_pitch": 88, "knee": 139, "ankle_roll": 35}


@pytest.mark.parametrize(("name", "sides"), [("go2", ("FL", "FR")), ("go2", ("RL", "RR")), ("g1", ("left", "right"))])
def test_right_side_is_the_mirror_image_of_the_left(name: str, sides: tuple[str, str]) -> None:
    model, data = default_pose(name)
    flip = np.array([1.0, -1.0, 1.0])
    for body in range(model.nbody):
        left = model.body(body).name
        if left.startswith(sides[0] + "_"):
            right = model.body(sides[1] + left.removeprefix(sides[0])).id
            np.testing.assert_allclose(data.xpos[right], data.xpos[body] * flip, atol=1e-12)
            np.testing.assert_allclose(data.xipos[right], data.xipos[body] * flip, atol=1e-12)
            np.testing.assert_allclose(model.body_inertia[right], model.body_inertia[body], rtol=1e-9)


@pytest.mark.parametrize("name", ["go2", "g1"])
def test_visuals_touch_nothing_and_every_collision_shape_has_a_name(name: str) -> None:
    model = asset_spec(name).compile()
    visual = model.geom_group == 2
    assert set(model.geom_group) == {2, 3}
    assert not model.geom_contype[visual].any()
    assert not model.geom_conaffinity[visual].any()
    assert all(model.geom(int(geom)).name.endswith("_collision") for geom in np.flatnonzero(~visual))


@pytest.mark.parametrize("name", ["go2", "g1"])
def test_in_the_default_pose_the_lowest_foot_is_just_on_the_ground(name: str) -> None:
    model, data = default_pose(name)
    spheres = (model.geom_group == 3) & (model.geom_type == mujoco.mjtGeom.mjGEOM_SPHERE) & (model.geom_priority == 1)
    feet = {model.body(body).name for body in model.geom_bodyid[spheres]}
    assert feet == set(FEET[name])
    assert (data.geom_xpos[spheres, 2] - model.geom_size[spheres, 0]).min() == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("name", ["go2", "g1"])
def test_stands_for_five_seconds_by_its_drives_and_the_scene_warns_of_nothing(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = SceneBuilder(SimulationManagerCfg(physics_dt=0.005))
    builder.add(RobotCfg("r", robot_type=name, fix_base=False, drive_pros=GAINS[name]))
    model = builder.compile().model
    assert capsys.readouterr().err == ""
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    start = data.qpos[:3].copy()
    mujoco.mj_step(model, data, 1000)
    assert data.qpos[2] > start[2] - 0.05
    assert data.qpos[:2] == pytest.approx(start[:2], abs=0.03)
    assert data.qpos[3] > 0.999  # upright: cos(half the angle)
    assert np.abs(data.qvel).max() < 0.05
