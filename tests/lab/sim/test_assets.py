"""The bundled robot models: published numbers, and frames."""

import mujoco
import numpy as np
import pytest

from embodichain.lab.sim.assets import asset_name, asset_spec, bundled_assets
from embodichain.lab.sim.cfg import JointDrivePropertiesCfg, RobotCfg, SimulationManagerCfg
from embodichain.lab.sim.model.scene import SceneBuilder

EFFORT = (330.0, 330.0, 150.0, 56.0, 56.0, 56.0)

# a2, a3, d1, d4, d5, d6 as published; rows of the tables are (d, a, alpha), theta comes from q.
UR = {
    "ur3": (-0.24365, -0.21325, 0.1519, 0.11235, 0.08535, 0.0819),
    "ur5": (-0.425, -0.39225, 0.089159, 0.10915, 0.09465, 0.0823),
    "ur10": (-0.612, -0.5723, 0.1273, 0.163941, 0.1157, 0.0922),
    "ur3e": (-0.24355, -0.2132, 0.15185, 0.13105, 0.08535, 0.0921),
    "ur5e": (-0.425, -0.3922, 0.1625, 0.1333, 0.0997, 0.0996),
    "ur10e": (-0.6127, -0.57155, 0.1807, 0.17415, 0.11985, 0.11655),
}
# Craig's convention: rows are (a, d, alpha), the last one is the flange.
PANDA = (
    (0.0, 0.333, 0.0),
    (0.0, 0.0, -np.pi / 2),
    (0.0, 0.316, np.pi / 2),
    (0.0825, 0.0, np.pi / 2),
    (-0.0825, 0.384, -np.pi / 2),
    (0.0, 0.0, np.pi / 2),
    (0.088, 0.0, np.pi / 2),
    (0.0, 0.107, 0.0),
)


def ur_product(name: str, q: np.ndarray) -> np.ndarray:
    """Pose 4x4 of DH frame 6 in the base."""
    a2, a3, d1, d4, d5, d6 = UR[name]
    quarter = np.pi / 2
    table = ((d1, 0, quarter), (0, a2, 0), (0, a3, 0), (d4, 0, quarter), (d5, 0, -quarter), (d6, 0, 0))
    pose = np.eye(4)
    for theta, (d, a, alpha) in zip(q, table, strict=True):
        c, s, ca, sa = np.cos(theta), np.sin(theta), np.cos(alpha), np.sin(alpha)
        link = [[c, -s * ca, s * sa, a * c], [s, c * ca, -c * sa, a * s], [0, sa, ca, d], [0, 0, 0, 1]]
        pose = pose @ np.array(link)
    return pose


def panda_product(q: np.ndarray) -> np.ndarray:
    """Pose 4x4 of the flange in the base."""
    pose = np.eye(4)
    for theta, (a, d, alpha) in zip([*q, 0.0], PANDA, strict=True):
        c, s, ca, sa = np.cos(theta), np.sin(theta), np.cos(alpha), np.sin(alpha)
        link = [[c, -s, 0, a], [s * ca, c * ca, -sa, -d * sa], [s * sa, c * sa, ca, d * ca], [0, 0, 0, 1]]
        pose = pose @ np.array(link)
    return pose


def product(name: str, q: np.ndarray) -> np.ndarray:
    return panda_product(q) if name == "panda" else ur_product(name, q)


def cart_pole() -> tuple[mujoco.MjModel, mujoco.MjData]:
    """The cart-pole at rest, upright."""
    model = asset_spec("cart_pole").compile()
    model.opt.timestep = 0.002
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    return model, mujoco.MjData(model)


@pytest.mark.parametrize("name", [*UR, "panda"])
def test_forward_kinematics_of_each_arm_is_the_dh_product(name: str) -> None:
    model = asset_spec(name).compile()
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    for q in (np.zeros(model.nq), *rng.uniform(-np.pi, np.pi, (20, model.nq))):
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        expected = product(name, q)
        np.testing.assert_allclose(data.site("tool0").xpos, expected[:3, 3], atol=1e-9)
        np.testing.assert_allclose(data.site("tool0").xmat.reshape(3, 3), expected[:3, :3], atol=1e-9)


def test_panda_has_the_published_position_limits() -> None:
    low = [-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973]
    high = [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973]
    np.testing.assert_allclose(asset_spec("panda").compile().jnt_range, np.stack((low, high), axis=1))


def test_centres_of_mass_lie_where_the_maker_says() -> None:
    # UR5e upper arm: 0.2125 from the elbow's frame towards the shoulder, so -0.425 + 0.2125 from the shoulder's.
    model = asset_spec("ur5e").compile()
    np.testing.assert_allclose(model.body("upper_arm_link").ipos, [-0.2125, 0.0, 0.11336])
    # Wrist 1: Rx(pi/2) (0, -0.0018, 0.01634) is (0, -0.01634, -0.0018), from (0, 0, d4).
    np.testing.assert_allclose(model.body("wrist_1_link").ipos, [0.0, -0.01634, 0.1333 - 0.0018])


def test_arm_has_the_published_masses_limits_and_no_actuators() -> None:
    model = asset_spec("ur10").compile()
    np.testing.assert_allclose(model.body_mass[1:], [4.0, 7.778, 12.93, 3.87, 1.96, 1.96, 0.202])
    limit = np.array([2, 2, 1, 2, 2, 2]) * np.pi
    np.testing.assert_allclose(model.jnt_range, np.stack([-limit, limit], axis=1))
    np.testing.assert_allclose(model.jnt_actfrcrange[:, 1], EFFORT)
    np.testing.assert_allclose(model.body_gravcomp[2:], 1.0)
    assert model.nu == 0


def test_gripper_opens_80_mm_and_weighs_one_kilogram() -> None:
    model = asset_spec("dh_pgi_140_80").compile()
    data = mujoco.MjData(model)
    np.testing.assert_allclose(model.jnt_range, [[0, 0.04], [0, 0.04]])
    np.testing.assert_allclose(model.jnt_actfrcrange, [[-140, 140], [-140, 140]])
    assert model.body_mass.sum() == pytest.approx(1.0)
    for closed in (0.0, 0.04):
        data.qpos[:] = closed
        mujoco.mj_kinematics(model, data)
        one, two = data.geom("gripper_finger1_collision"), data.geom("gripper_finger2_collision")
        thickness = 2 * model.geom("gripper_finger1_collision").size[0]
        assert one.xpos[0] - two.xpos[0] - thickness == pytest.approx(2 * (0.04 - closed), abs=1e-12)


@pytest.mark.parametrize("name", [*UR, "panda", "dh_pgi_140_80", "cart_pole", "go2", "g1", "microduck"])
def test_visuals_touch_nothing_and_collisions_are_few(name: str) -> None:
    model = asset_spec(name).compile()
    visual = model.geom_group == 2
    assert not model.geom_contype[visual].any()
    assert not model.geom_conaffinity[visual].any()
    assert set(model.geom_group) == {2, 3}
    assert (~visual).sum() <= 2 * model.nbody


def test_cart_pole_falls_at_the_linearised_rate() -> None:
    model, data = cart_pole()
    model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    data.qpos[1] = 1e-4
    mujoco.mj_forward(model, data)
    energy = data.energy.sum()
    for _ in range(500):
        mujoco.mj_step(model, data)
    # (I + m l^2 - (m l)^2 / (M + m)) theta'' = m g l theta, so after t = 1 s theta = theta0 cosh(w t)
    inertia = 0.00834 + 0.1 * 0.5**2 - (0.1 * 0.5) ** 2 / 1.1
    rate = np.sqrt(0.1 * 9.81 * 0.5 / inertia)
    assert data.qpos[1] == pytest.approx(1e-4 * np.cosh(rate), rel=1e-3)
    assert data.energy.sum() == pytest.approx(energy, abs=1e-9)


ALL = [
    *("cart_pole", "dh_pgi_140_80", "door", "drawer_cabinet", "g1", "go2", "microduck", "panda", "quadrotor"),
    *("three_finger_hand", "ur10", "ur10e", "ur3", "ur3e", "ur5", "ur5e"),
]


def test_assets_are_found_by_older_names_in_any_case() -> None:
    assert asset_name("DH_PGI_140_80/DH_PGI_140_80.urdf") == "dh_pgi_140_80"
    assert asset_name("CartPole/cart_pole.urdf") == asset_name("cart_pole.xml") == "cart_pole"
    assert asset_name("UniversalRobots/UR10/UR10.urdf") == asset_name("UR10") == "ur10"
    assert asset_name("UniversalRobots/UR5e/UR5e.urdf") == "ur5e"
    assert bundled_assets() == ALL


@pytest.mark.parametrize("name", ["robots/none.urdf", ""])
def test_unknown_asset_is_refused_with_the_bundled_names(name: str) -> None:
    with pytest.raises(FileNotFoundError, match="neither an existing file nor .* Bundled: " + ", ".join(ALL)):
        asset_spec(name)


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
def test_lowest_foot_is_on_the_ground_in_the_default_pose(name: str) -> None:
    model, data = default_pose(name)
    spheres = (model.geom_group == 3) & (model.geom_type == mujoco.mjtGeom.mjGEOM_SPHERE) & (model.geom_priority == 1)
    feet = {model.body(body).name for body in model.geom_bodyid[spheres]}
    assert feet == set(FEET[name])
    assert (data.geom_xpos[spheres, 2] - model.geom_size[spheres, 0]).min() == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("name", ["go2", "g1"])
def test_legged_robot_stands_for_five_seconds(name: str, capsys: pytest.CaptureFixture[str]) -> None:
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
