"""Robots of several parts. Units: m."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from embodichain.lab.sim.cfg import ArticulationCfg, RobotCfg, SimulationManagerCfg, URDFCfg, URDFComponentCfg
from embodichain.lab.sim.model.model_files import Assembly, assemble
from embodichain.lab.sim.model.scene import SceneBuilder
from embodichain.utils import ConfigError

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


def test_link_named_like_a_flange_takes_a_hand(tmp_path: Any) -> None:
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


def test_first_parts_transform_is_the_base() -> None:
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
        ({"robot_type": "CartPole"}, 2),
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


def scene(cfg: ArticulationCfg) -> mujoco.MjModel:
    """The physics model of a scene with one articulation."""
    builder = SceneBuilder(SimulationManagerCfg())
    builder.add(cfg)
    return builder.compile().model


@pytest.mark.parametrize("own", ["", "<freejoint/>"])
def test_free_base_falls_and_fixed_base_stays(tmp_path: Path, own: str) -> None:
    path = tmp_path / "lump.xml"
    path.write_text(
        f'<mujoco><worldbody><body name="lump">{own}<geom size="0.1" mass="1"/></body></worldbody></mujoco>'
    )
    heights = {}
    for fix_base in (True, False):
        model = scene(ArticulationCfg(uid="a", fpath=str(path), fix_base=fix_base, init_pos=(0.0, 0.0, 2.0)))
        data = mujoco.MjData(model)
        mujoco.mj_resetDataKeyframe(model, data, 0)
        mujoco.mj_step(model, data, 10)
        mujoco.mj_forward(model, data)
        heights[fix_base] = float(data.body("a/lump").xpos[2])
    # 2 - 9.81 * 0.01^2 * (1 + 2 + ... + 10)
    assert heights == pytest.approx({True: 2.0, False: 2.0 - 9.81e-4 * 55})


@pytest.mark.parametrize("own", ["", "<freejoint/>"])
@pytest.mark.parametrize(
    ("pose", "expected"),
    [
        ({}, [1, 2, 3, 0, 1, 0, 0]),
        ({"init_rot": (0.0, 0.0, 180.0)}, [1, 2, 3, 0, 0, 1, 0]),  # half a turn about z after half a turn about x
        ({"init_pos": (0.0, 0.0, 5.0)}, [0, 0, 5, 0, 1, 0, 0]),
    ],
)
def test_free_base_starts_where_file_or_config_says(
    tmp_path: Path, own: str, pose: dict[str, Any], expected: list[float]
) -> None:
    path = tmp_path / "lump.xml"
    path.write_text(
        f'<mujoco><worldbody><body name="lump" pos="1 2 3" quat="0 1 0 0">{own}<geom size="0.1" mass="1"/></body>'
        "</worldbody></mujoco>"
    )
    model = scene(ArticulationCfg(uid="a", fpath=str(path), fix_base=False, **pose))
    assert model.key_qpos[0].tolist() == pytest.approx(expected, abs=1e-7)


def test_fixed_base_keeps_its_offset_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lump.xml"
    path.write_text('<mujoco><worldbody><body name="lump" pos="0 0 1"><geom size="0.1"/></body></worldbody></mujoco>')
    model = scene(ArticulationCfg(uid="a", fpath=str(path), init_pos=(0.0, 0.0, 2.0)))
    assert model.body("a/lump").pos.tolist() == [0, 0, 3]


def test_room_that_a_file_reserves_is_no_matter_of_the_scene(tmp_path: Path) -> None:
    path = tmp_path / "lump.xml"
    path.write_text(
        '<mujoco><size nkey="2" njmax="50" nuser_geom="1"/><worldbody><body name="lump"><geom size="0.1"/></body>'
        "</worldbody></mujoco>"
    )
    model = scene(ArticulationCfg(uid="a", fpath=str(path), fix_base=False))  # a warning would be an error here
    assert model.nkey == 1  # the scene's own


def test_free_base_of_two_roots_is_an_error_that_names_them(tmp_path: Path) -> None:
    path = tmp_path / "two.xml"
    path.write_text(
        '<mujoco><worldbody><body name="one"><geom size="0.1"/></body><body name="two"><geom size="0.1"/></body>'
        "</worldbody></mujoco>"
    )
    with pytest.raises(ConfigError, match="articulation 'a': fix_base false needs one root, got one, two"):
        scene(ArticulationCfg(uid="a", fpath=str(path), fix_base=False))


def test_free_base_with_joints_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "planar.xml"
    path.write_text(
        '<mujoco><worldbody><body name="torso"><joint name="rootx" type="slide"/><joint name="rooty" axis="0 1 0"/>'
        '<geom size="0.1"/></body></worldbody></mujoco>'
    )
    with pytest.raises(ConfigError, match=r"'torso' has joints that move it: rootx, rooty\. Leave fix_base out"):
        scene(ArticulationCfg(uid="a", fpath=str(path), fix_base=False))
    assert scene(ArticulationCfg(uid="a", fpath=str(path))).nq == 2
