"""MicroDuck's model beside the numbers in its maker's file (microduck_rl, robot_walk.xml), typed by hand."""

import mujoco
import numpy as np
import pytest

from embodichain.lab.sim.assets import asset_spec

# Body: mass kg, centre of mass m, inertia xx yy zz xy xz yz kg m^2; of the body's own frame.
_INERTIAS = """
trunk 0.199224 -0.0226332 -2.70828e-5 0.00280064 0.000123975 0.000145931 0.000115351 7.1651e-8 -2.06915e-5 1.32429e-7
left_hip_yaw_link 0.0230406 0.0 0.00099414 0.0168917 4.1964e-6 3.41752e-6 2.3265e-6 0 0 -5.0881e-8
left_hip_roll_link 0.00618934 0.014815 0.0 -0.00829992 8.60626e-7 1.15753e-6 6.51588e-7 0 3.89882e-7 0
left_thigh 0.0482067 0.006766 0.0228838 0.0134531 1.68753e-5 1.03691e-5 1.98269e-5 -4.41852e-6 2.27982e-7 3.89298e-7
left_shin 0.0215844 0.0 0.0318937 -0.00953505 5.25056e-6 2.15507e-6 4.33925e-6 0 0 7.65005e-7
left_foot 0.0300246 -0.00615738 -0.0137483 -0.0156586 5.91525e-6 1.11534e-5 7.74015e-6 -2.0535e-7 8.2152e-8 5.6714e-8
neck 0.0368414 0.0 -0.025 0.0141665 1.72925e-5 3.12694e-6 1.63707e-5 0 0 0
head_pitch_link 0.00572 0.0 0.0116641 -0.0145 1.09186e-6 9.66855e-7 5.12111e-7 0 0 0
head_yaw_link 0.0486 -0.000166657 -0.00500964 0.0178065 6.97903e-6 8.10293e-6 9.57884e-6 3.21657e-7 -3.4797e-8 3.4295e-7
head 0.188766 0.00460523 0.00120047 -0.0324761 0.000320812 0.0002541 0.000149882 -6.32292e-7 6.57154e-6 4.18476e-6
right_hip_yaw_link 0.0230406 0.0 0.00099414 0.0168917 4.1964e-6 3.41752e-6 2.3265e-6 0 0 -5.0881e-8
right_hip_roll_link 0.00618934 0.014815 0.0 -0.00829992 8.60626e-7 1.15753e-6 6.51588e-7 0 3.89882e-7 0
right_thigh 0.0482067 -0.006766 0.0228838 0.0134531 1.68753e-5 1.03691e-5 1.98269e-5 4.41852e-6 -2.27982e-7 3.89298e-7
right_shin 0.0215844 -0.0318937 0.0 -0.00953505 2.15507e-6 5.25056e-6 4.33925e-6 0 -7.65005e-7 0
right_foot 0.0300251 0.00615539 -0.0137482 -0.0156566 5.91534e-6 1.11534e-5 7.74016e-6 2.04877e-7 -8.247e-8 5.7017e-8
"""
INERTIAS = {name: [*map(float, numbers)] for name, *numbers in map(str.split, _INERTIAS.strip().splitlines())}
# Joint of each body, in the order of the servos: parent, position, quaternion wxyz, lowest and highest angle, home.
Q = 0.70710678
JOINTS = {
    "left_hip_yaw": ("trunk", (0.006, 0.0175, -0.005), (0, -Q, -Q, 0), -0.43633, 0.52360, 0.0),
    "left_hip_roll": ("left_hip_yaw_link", (0, 0.0165, 0.0125), (Q, -Q, 0, 0), -0.38397, 0.38397, -0.0873),
    "left_hip_pitch": ("left_hip_roll_link", (0.025, 0, -0.0185), (0.5, -0.5, 0.5, -0.5), -1.5708, 1.5708, -0.4579),
    "left_knee": ("left_thigh", (0.022, 0.0357771, -0.004), (0, Q, Q, 0), -1.5708, 1.5708, -0.0049),
    "left_ankle": ("left_shin", (0, 0.042, -0.026), (0, 1, 0, 0), -1.5708, 1.5708, 0.4530),
    "neck_pitch": ("trunk", (0.026, 0.0145, 0.0324215), (0, 0, Q, -Q), -1.5708, 1.0472, 0.3491),
    "head_pitch": ("neck", (0, -0.05, 0), (0, 1, 0, 0), -1.5708, 1.5708, 0.3491),
    "head_yaw": ("head_pitch_link", (0, 0.0186931, -0.0145), (0, 0, -Q, -Q), -2.96706, 2.96706, 0.0),
    "head_roll": ("head_yaw_link", (-0.0179, 0, 0.0145), (Q, 0, -Q, 0), -0.43633, 0.43633, 0.0),
    "right_hip_yaw": ("trunk", (0.006, -0.0175, -0.005), (0, Q, Q, 0), -0.52360, 0.43633, 0.0),
    "right_hip_roll": ("right_hip_yaw_link", (0, 0.0165, 0.0125), (0, 0, Q, Q), -0.38397, 0.38397, 0.0873),
    "right_hip_pitch": ("right_hip_roll_link", (0.025, 0, -0.0185), (0.5, -0.5, 0.5, -0.5), -1.5708, 1.5708, 0.4579),
    "right_knee": ("right_thigh", (-0.022, 0.0357771, -0.004), (0, 1, 0, 0), -1.5708, 1.5708, 0.0049),
    "right_ankle": ("right_shin", (-0.042, 0, -0.026), (0, -Q, -Q, 0), -1.5708, 1.5708, -0.4530),
}


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return asset_spec("microduck").compile()


def test_masses_and_inertias_are_the_published_ones(model: mujoco.MjModel) -> None:
    assert [model.body(b).name for b in range(1, model.nbody)] == list(INERTIAS)
    assert model.body_mass.sum() == pytest.approx(0.7372, abs=1e-4)
    for name, (mass, *centre, xx, yy, zz, xy, xz, yz) in INERTIAS.items():
        body = model.body(name)
        assert body.mass[0] == mass
        np.testing.assert_allclose(body.ipos, centre, atol=1e-7)
        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, body.iquat)
        axes = turn.reshape(3, 3)
        published = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        np.testing.assert_allclose(axes @ np.diag(body.inertia) @ axes.T, published, atol=1e-11)


def test_joints_are_the_published_ones_in_servo_order(model: mujoco.MjModel) -> None:
    assert [model.joint(j).name for j in range(1, model.njnt)] == list(JOINTS)
    home = model.key("home").qpos[7:]
    for number, (name, (parent, pos, quat, low, high, start)) in enumerate(JOINTS.items()):
        joint = model.joint(name)
        body = model.body(joint.bodyid[0])
        assert model.body(body.parentid[0]).name == parent
        np.testing.assert_allclose(body.pos, pos, atol=1e-9)
        np.testing.assert_allclose(body.quat, quat, atol=1e-7)
        np.testing.assert_allclose((joint.pos, joint.axis), ([0, 0, 0], [0, 0, 1]))
        np.testing.assert_allclose(joint.range, [low, high], atol=1e-5)
        assert home[number] == start


def test_joints_have_the_published_servo_as_numbers(model: mujoco.MjModel) -> None:
    np.testing.assert_allclose(model.dof_damping[6:], 0.053)
    np.testing.assert_allclose(model.dof_frictionloss[6:], 0.0048)
    np.testing.assert_allclose(model.dof_armature[6:], 0.0018)
    np.testing.assert_allclose(model.jnt_actfrcrange[1:], [[-0.96, 0.96]] * 14)


def test_soles_lie_flat_on_the_ground_at_home(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_forward(model, data)
    soles = [g for g in range(model.ngeom) if model.body(model.geom_bodyid[g]).name.endswith("_foot")]
    soles = [g for g in soles if model.geom_contype[g]]
    assert len(soles) == 8
    bottoms = data.geom_xpos[soles, 2] - model.geom_size[soles, 0]
    np.testing.assert_allclose(bottoms, 0.0, atol=1e-4)
    # The outer edge of the soles' plan is 54 mm from toe to heel, 20 mm of them behind the ankle.
    ahead = data.geom_xpos[soles, 0] - data.body("left_foot").xpos[0]
    np.testing.assert_allclose((ahead.max() + 0.0072, ahead.min() - 0.0072), (0.034, -0.020), atol=2e-4)
