"""Robots of several parts. Units: m."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest

from embodichain.lab.sim.cfg import ArticulationCfg, RobotCfg, URDFCfg, URDFComponentCfg
from embodichain.lab.sim.model.assembly import Assembly, assemble

HAND = "dh_pgi_140_80"
LIFTED = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0.5), (0, 0, 0, 1))


def robot(*components: tuple[Any, ...], **cfg: Any) -> Assembly:
    parts = [URDFComponentCfg(*component) for component in components]
    return assemble(RobotCfg("r", urdf_cfg=URDFCfg(parts), **cfg), "robot 'r'")


def position(built: Assembly, link: str) -> list[Any]:
    model = built.spec.copy().compile()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    return [pytest.approx(x, abs=1e-9) for x in data.body(built.links[link]).xpos]


def test_hand_sits_on_the_arms_flange_and_its_joints_come_last() -> None:
    built = robot(("hand", HAND), ("arm", "ur10"))
    assert built.parts["hand"] == ["gripper_finger1_joint_1", "gripper_finger2_joint_1"]
    assert list(built.joints) == [*built.parts["arm"], *built.parts["hand"]]
    # The flange at zero: x = -0.612 - 0.5723, y = -0.163941 - 0.0922, z = 0.1273 - 0.1157
    assert position(built, "gripper_base_link") == [-1.1843, -0.256141, 0.0116]


def test_transform_moves_a_hand_in_the_flanges_frame() -> None:
    # The flange's z axis points along -y at zero: 0.5 m further out.
    built = robot(("arm", "ur10"), ("hand", HAND, LIFTED))
    assert position(built, "gripper_base_link") == [-1.1843, -0.756141, 0.0116]


def test_link_named_like_a_flange_takes_a_hand_where_there_is_no_site(tmp_path: Any) -> None:
    path = tmp_path / "arm.xml"
    path.write_text(
        '<mujoco><worldbody><body name="a"><joint name="j"/><geom size="0.1"/><body name="b" pos="0 0 1">'
        '<body name="flange" pos="0 2 0"/></body></body></worldbody></mujoco>'
    )
    assert position(robot(("hand", HAND), fpath=str(path)), "gripper_base_link") == [0.0, 2.0, 1.0]


def test_arm_without_a_flange_takes_a_hand_on_its_last_link() -> None:
    built = robot(("hand", HAND), fpath="cart_pole")
    assert built.spec.body(built.links["gripper_base_link"]).parent.name == "pole"


def test_two_arms_with_hands_have_their_sides_before_all_names() -> None:
    built = robot(("left_arm", "ur3"), ("right_arm", "ur3", LIFTED), ("left_hand", HAND), ("right_hand", HAND))
    assert list(built.parts) == ["left_arm", "right_arm", "left_hand", "right_hand"]
    assert built.parts["right_arm"][0] == "right_shoulder_pan_joint"
    assert built.parts["left_hand"][0] == "left_gripper_finger1_joint_1"
    left, right = position(built, "left_gripper_base_link"), position(built, "right_gripper_base_link")
    assert right == [left[0].expected, left[1].expected, pytest.approx(left[2].expected + 0.5)]


def test_transform_of_the_first_part_is_the_base_and_the_others_stand_beside_it() -> None:
    built = robot(("left_arm", "ur3", LIFTED), ("right_arm", "ur3"))
    np.testing.assert_allclose(built.base_transform[:3, 3], [0, 0, 0.5])
    assert position(built, "right_base_link") == [0.0, 0.0, -0.5]  # in the frame of the first


@pytest.mark.parametrize(
    ("cfg", "joints"),
    [
        ({"robot_type": "URRobot"}, 6),
        ({"robot_type": "URRobot", "ur_type": "ur3e"}, 6),
        ({"robot_type": "UR5"}, 6),
        ({"robot_type": "FrankaPanda"}, 7),
        ({"robot_type": "panda"}, 7),
        ({"robot_type": "CartPole"}, 2),
        ({"robot_type": "dh_pgi_140_80"}, 2),
    ],
)
def test_bundled_robots_go_by_type(cfg: dict[str, str], joints: int) -> None:
    assert len(robot(**cfg).joints) == joints


def test_articulation_is_one_part() -> None:
    built = assemble(ArticulationCfg("c", fpath="drawer_cabinet"), "here")
    assert list(built.joints) == ["drawer_top_joint", "drawer_bottom_joint"]
    assert "drawer_top_handle" in built.links


def test_parts_on_a_torso_without_joints_go_where_its_flange_is(tmp_path: Any) -> None:
    path = tmp_path / "torso.xml"
    path.write_text(
        '<mujoco><worldbody><body name="torso"><geom size="0.1"/><site name="flange" pos="0 0 0.8"/></body></worldbody>'
        "</mujoco>"
    )
    built = robot(("arm", "ur3"), ("torso", str(path)), ("head", "cart_pole"), ("hand", HAND))
    assert list(built.parts) == ["torso", "head", "arm", "hand"]
    assert built.parts["torso"] == []
    for link in ("slider", "base_link"):
        assert position(built, link) == [0.0, 0.0, 0.8]
