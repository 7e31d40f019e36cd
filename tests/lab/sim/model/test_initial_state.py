"""Initial positions, joints that follow, and initial collisions. Units: m, rad."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from embodichain.lab.sim.cfg import ArticulationCfg, JointDrivePropertiesCfg, RigidObjectCfg
from embodichain.lab.sim.model.initial_state import mimics, write_keyframe
from embodichain.lab.sim.shapes import CubeCfg, SphereCfg
from tests.lab.scenes import simulate, ur10

LOOSE = JointDrivePropertiesCfg(stiffness=0.0, damping=0.0)

# b = 0.5 + 2 (a - 0.1) and c = 1 - b + b^2, from zero positions 0.1, 0.2 and 0; the file says so in the other order.
CHAIN = """
<mujoco><compiler angle="radian"/><worldbody>
  <body><joint name="a" ref="0.1"/><geom size="0.1"/></body>
  <body><joint name="b" ref="0.2"/><geom size="0.1"/></body>
  <body><joint name="c"/><geom size="0.1"/></body>
  <body><joint name="d" range="0.3 1" limited="true"/><geom size="0.1"/></body>
</worldbody><equality>
  <joint joint1="c" joint2="b" polycoef="1 -1 1 0 0"/><joint joint1="b" joint2="a" polycoef="0.5 2 0 0 0"/>
</equality><keyframe><key/></keyframe></mujoco>"""


def test_joints_that_mimic_follow_leaders_first_and_others_stand_at_zero_or_the_next_limit() -> None:
    model = mujoco.MjModel.from_xml_string(CHAIN)
    assert [(follower, leader) for follower, leader, _ in mimics(model)] == [(1, 0), (2, 1)]
    write_keyframe(model, {"a": 0.4})
    # b = 0.2 + 0.5 + 2 * 0.3 = 1.3; b moved by 1.1, so c = 1 - 1.1 + 1.21; d: the limit next to 0
    np.testing.assert_allclose(model.key_qpos[0], [0.4, 1.3, 1.11, 0.3])


def test_bodies_in_each_other_are_named_with_the_depth_in_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    simulate(
        RigidObjectCfg("cube", shape=CubeCfg(), init_pos=(2.0, 0.0, 0.045)),
        RigidObjectCfg("ball", shape=SphereCfg(radius=0.05), init_pos=(2.0, 0.0, 0.125)),
        RigidObjectCfg("resting", shape=CubeCfg(), init_pos=(3.0, 0.0, 0.05)),
    )
    # The cube's lower face is 5 mm below the ground; the ball's lowest point, at 0.075, 20 mm below its upper face.
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "initial poses are in collision: " in message
    assert "'ball' and 'cube' by 20.0 mm" in message
    assert "'ground' and 'cube' by 5.0 mm" in message
    assert "resting" not in message


def test_link_of_a_robot_in_a_cabinet_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    simulate(
        ur10(),
        ArticulationCfg("cabinet", fpath="drawer_cabinet", init_pos=(-0.4, -0.16, 0.1), drive_pros=LOOSE),
    )
    assert "arm/" in (message := capsys.readouterr().err)
    assert "cabinet/" in message
