"""Makers' files: URDF and MJCF, with meshes, mimic joints and actuators of their own; robots of several parts.

Units: m, rad, Nm.
"""

import sys
import types
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from embodichain.lab.sim.assets import asset_spec
from embodichain.lab.sim.cfg import (
    ArticulationCfg,
    JointDrivePropertiesCfg,
    RobotCfg,
    SimulationManagerCfg,
    URDFCfg,
    URDFComponentCfg,
)
from embodichain.lab.sim.model.model_files import Assembly, ModelFile, assemble, load_model
from embodichain.lab.sim.model.scene import CompiledScene, SceneBuilder
from embodichain.utils import ConfigError
from tests.lab.scenes import TETRAHEDRON

INERTIAL = '<inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'


def mesh(kind: str, name: str) -> str:
    return f'<{kind}><geometry><mesh filename="{name}"/></geometry></{kind}>'


def urdf(folder: Path, link: str = "") -> Path:
    """Write a robot of two hinges, the second of which follows the first: q2 = 0.1 - 2 q1."""
    path = folder / "robot.urdf"
    path.write_text(
        f"""<robot name="r"><link name="base">{INERTIAL}{link}</link>
        <link name="one">{INERTIAL}</link><link name="two">{INERTIAL}</link><link name="tool0"/>
        <joint name="j1" type="revolute"><parent link="base"/><child link="one"/><axis xyz="0 0 1"/>
          <limit lower="-1" upper="1.5" effort="5" velocity="2"/><dynamics damping="0.3" friction="0.2"/></joint>
        <joint name="j2" type="revolute"><parent link="one"/><child link="two"/><axis xyz="0 0 1"/>
          <limit lower="-3" upper="3" effort="4" velocity="2"/><mimic joint="j1" multiplier="-2" offset="0.1"/>
        </joint>
        <joint name="fixed" type="fixed"><parent link="two"/><child link="tool0"/><origin xyz="0 0 0.3"/></joint>
        </robot>"""
    )
    return path


def mjcf(folder: Path, inside: str) -> ModelFile:
    path = folder / "robot.xml"
    path.write_text(f'<mujoco><compiler angle="radian"/>{inside}</mujoco>')
    return load_model(str(path), "robot 'r'")


def test_urdf_keeps_limits_efforts_fixed_links_and_mimic_joints(tmp_path: Path) -> None:
    loaded = load_model(str(urdf(tmp_path)), "here")
    assert loaded.joints == ["j1", "j2"]
    assert loaded.undriven == {"j2"}
    assert loaded.links == ["world", "base", "one", "two", "tool0"]
    model = loaded.spec.compile()
    assert model.jnt_range.tolist() == [[-1, 1.5], [-3, 3]]
    assert model.jnt_actfrcrange.tolist() == [[-5, 5], [-4, 4]]
    assert (model.dof_damping[0], model.dof_frictionloss[0]) == (0.3, 0.2)
    assert model.eq_data[0, :5].tolist() == [0.1, -2, 0, 0, 0]


def test_links_of_a_urdf_that_shapes_give_their_mass_are_listed(tmp_path: Path) -> None:
    ball = '<collision><geometry><sphere radius="0.1"/></geometry></collision>'
    own = '<inertial><mass value="2"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    path = tmp_path / "robot.urdf"
    path.write_text(
        f"""<robot name="r"><link name="base">{ball}{own}</link><link name="foot">{ball}</link><link name="tip"/>
        <joint name="j" type="continuous"><parent link="base"/><child link="foot"/></joint>
        <joint name="k" type="fixed"><parent link="foot"/><child link="tip"/></joint></robot>"""
    )
    # 4/3 pi 0.1^3 1000
    assert load_model(str(path), "here").changes[0] == (
        "links without an inertial have their shapes' mass at 1000 kg/m3: foot (4.189 kg)"
    )


@pytest.mark.parametrize(
    "name", ["meshes/part.obj", "package://my_robot/meshes/part.obj", "package://r/meshes/part.obj"]
)
def test_urdf_finds_its_meshes_beside_it_or_in_its_package(tmp_path: Path, name: str) -> None:
    package = tmp_path / "my_robot"
    (package / "meshes").mkdir(parents=True)
    (package / "meshes" / "part.obj").write_text(TETRAHEDRON)
    folder = package if name.startswith("meshes") else package / "urdf"
    folder.mkdir(exist_ok=True)
    model = load_model(str(urdf(folder, mesh("visual", name) + mesh("collision", name))), "here").spec.compile()
    assert model.geom_type.tolist() == [mujoco.mjtGeom.mjGEOM_MESH] * 2
    # What is seen touches nothing and has no mass; what touches is not drawn.
    assert model.geom_contype.tolist() == [0, 1]
    assert model.geom_group.tolist() == [1, 3]


def test_missing_mesh_is_an_error_that_names_the_link(tmp_path: Path) -> None:
    path = urdf(tmp_path, mesh("visual", "meshes/arm.obj") + mesh("collision", "gone/x.stl"))
    with pytest.raises(ConfigError) as caught:
        load_model(str(path), "robot 'r'")
    first, second = str(caught.value).splitlines()
    assert first == f"robot 'r': {path}: mesh 'meshes/arm.obj' (visual of link 'base') is not there"
    assert "mesh 'gone/x.stl' (collision of link 'base') is not there" in second


def test_unreadable_visual_mesh_is_left_out_or_replaced(tmp_path: Path) -> None:
    for name in ("a.dae", "b.glb"):
        (tmp_path / name).write_text("not a mesh of ours")
    (tmp_path / "a.obj").write_text(TETRAHEDRON)
    path = urdf(tmp_path, mesh("visual", "a.dae") + mesh("visual", "b.glb"))
    model = load_model(str(path), "here")
    assert model.spec.compile().ngeom == 1
    assert model.unseen == ["'b.glb' (visual of link 'base')"]
    with pytest.raises(ConfigError, match=r"'b\.glb' \(collision of link 'base'\) must be one of \.obj, \.stl, \.msh"):
        load_model(str(urdf(tmp_path, mesh("collision", "b.glb"))), "here")


def test_moving_link_without_mass_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"robot 'r': cannot compile .* mass and inertia"):
        mjcf(tmp_path, '<worldbody><body name="b"><joint name="j"/></body></worldbody>')


def test_missing_mesh_of_an_mjcf_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "link.obj").write_text(TETRAHEDRON)
    scene = (
        '<compiler meshdir="assets"/><asset><mesh name="m" file="{}"/></asset>'
        '<worldbody><body name="b"><geom type="mesh" mesh="m"/></body></worldbody>'
    )
    with pytest.raises(ConfigError, match=r"robot 'r': mesh '.*assets/lnk\.obj' is not there"):
        mjcf(tmp_path, scene.format("lnk.obj"))
    assert mjcf(tmp_path, scene.format("link.obj")).spec.compile().nmesh == 1


def test_own_actuators_say_which_joints_are_driven(tmp_path: Path) -> None:
    body = '<body name="{0}"><joint name="{0}"/><geom size="0.1"/></body>'
    loaded = mjcf(
        tmp_path,
        f"<worldbody>{body.format('a')}{body.format('b')}{body.format('c')}{body.format('d')}</worldbody>"
        '<tendon><fixed name="t"><joint joint="b" coef="1"/><joint joint="c" coef="1"/></fixed></tendon>'
        '<actuator><position joint="a" kp="1" forcerange="-6 6"/><motor tendon="t"/></actuator>'
        '<equality><joint joint1="c" joint2="b"/></equality>'
        '<sensor><jointpos joint="a"/></sensor>',
    )
    assert loaded.joints == ["a", "b", "c", "d"]
    assert loaded.undriven == {"c", "d"}  # c follows b, and nothing moves d
    model = loaded.spec.compile()
    assert (model.nu, model.nsensor) == (0, 0)
    assert model.jnt_actfrcrange[0].tolist() == [-6, 6]


def test_first_keyframe_is_home_and_is_taken_out(tmp_path: Path) -> None:
    loaded = mjcf(
        tmp_path,
        '<worldbody><body name="base"><freejoint/><geom size="0.1"/><body name="a"><joint name="a"/><geom size="0.1"/>'
        '</body></body></worldbody><keyframe><key qpos="1 2 3 1 0 0 0 0.7"/></keyframe>',
    )
    assert loaded.home == {"a": 0.7}
    assert loaded.start.tolist() == [1, 2, 3, 1, 0, 0, 0]
    assert loaded.spec.compile().nkey == 0


def test_ball_joint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="joint 'b' is a ball joint"):
        mjcf(tmp_path, '<worldbody><body><joint name="b" type="ball"/><geom size="0.1"/></body></worldbody>')


class Menagerie(types.ModuleType):
    """Stands for the package ``mujoco_menagerie``, which downloads."""

    class MenagerieError(Exception):
        """Its errors."""

    class Robot:
        """Its robots."""

        default_model = "panda"

        def spec(self, entry: str) -> mujoco.MjSpec:
            return asset_spec({"panda": "panda", "hand": "dh_pgi_140_80"}[entry])

    def get(self, name: str) -> Robot:
        if name != "franka":
            raise self.MenagerieError(f"Unknown robot {name!r}. Did you mean 'franka'?")
        return self.Robot()


def test_model_of_the_menagerie_is_loaded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco_menagerie", Menagerie("mujoco_menagerie"))
    assert len(load_model("menagerie/franka", "here").joints) == 7
    assert len(load_model("menagerie/franka/hand", "here").joints) == 2
    with pytest.raises(ConfigError, match=r"here: 'menagerie/frank': Unknown robot 'frank'\. Did you mean 'franka'"):
        load_model("menagerie/frank", "here")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('lower="-1"', 'lower="-inf"', r"jnt range of 'j1' must be finite, got -inf, 1\.5"),
        ('effort="5"', 'effort="inf"', r"jnt actfrcrange of 'j1' must be finite, got -inf, inf"),
        ('mass value="1"', 'mass value="inf"', r"body \w+ of '\w+' must be finite"),
        ('name="j2"', 'name="j1"', "joint 'j1': there is another of this name"),
        ('mimic joint="j1"', 'mimic joint="j"', "joint 'j2': mimics 'j', which is not there"),
        ('upper="1.5"', 'upper="-1.5"', r"joint 'j1': its lower limit -1 is above the upper one -1\.5"),
        ('damping="0.3"', 'damping="-0.3"', r"joint 'j1': its damping -0\.3 is below 0"),
        ("</robot>", "<x>" * 5000 + "</x>" * 5000 + "</robot>", "cannot read "),
        ("<robot", '<?xml version="1.0" encoding="none"?><robot', "cannot read .*unknown encoding"),
    ],
)
def test_numbers_and_depths_that_no_robot_has_are_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = urdf(tmp_path)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=rf"robot 'r': .*{message}") as refused:
        load_model(str(path), "robot 'r'")
    assert "\n" not in str(refused.value)


def test_limits_of_a_joint_that_turns_on_and_on_do_not_count(tmp_path: Path) -> None:
    path = urdf(tmp_path)
    text = path.read_text().replace('"revolute"', '"continuous"', 1).replace('upper="1.5"', 'upper="-1.5"')
    path.write_text(text)
    assert "j1" not in load_model(str(path), "robot 'r'").ranges


def test_vertices_of_a_cloth_are_not_driven(tmp_path: Path) -> None:
    cloth = '<flexcomp name="f" type="grid" dim="2" count="3 3 1" spacing=".1 .1 .1" mass="1"><pin id="0"/></flexcomp>'
    model = mjcf(tmp_path, f"<worldbody>{cloth}{ARM}</worldbody>")
    assert (len(model.joints), set(model.joints) - model.undriven) == (3 * 8 + 1, {"j"})


def test_warning_of_mujoco_is_one_line_when_the_scene_is_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "robot.xml"
    path.write_text(
        '<mujoco model="m"><compiler settotalmass="3"/><visual><map znear="0.02"/></visual><worldbody>'
        '<body name="a" pos="0 0 1"><joint name="j"/><geom size="0.1"/></body></worldbody></mujoco>'
    )
    builder = SceneBuilder(SimulationManagerCfg())
    builder.add(ArticulationCfg("r", fpath=str(path)))
    assert capsys.readouterr().err == ""
    builder.compile()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[WARNING] articulation 'r': compiler attribute 'settotalmass' is deprecated")


HAND = "dh_pgi_140_80"
LIFTED = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0.5), (0, 0, 0, 1))


def robot(*components: tuple[Any, ...], **cfg: Any) -> Assembly:
    parts = [URDFComponentCfg(*component) for component in components]
    return assemble(RobotCfg("r", urdf_cfg=URDFCfg(parts), **cfg), "robot 'r'")


def hand_on(folder: Path, arm: str) -> Assembly:
    """The robot of an arm, of a file with this world, and a hand."""
    path = folder / "arm.xml"
    path.write_text(f"<mujoco><worldbody>{arm}</worldbody></mujoco>")
    return robot(("hand", HAND), fpath=str(path))


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
    link = '<body name="b" pos="0 0 1"><body name="flange" pos="0 2 0"/></body>'
    built = hand_on(tmp_path, f'<body name="a"><joint name="j"/><geom size="0.1"/>{link}</body>')
    assert position(built, "gripper_base_link") == [0.0, 2.0, 1.0]


def test_hand_is_turned_and_moved_as_the_flange_is(tmp_path: Any) -> None:
    flange = '<frame pos="0 0 1"><site name="flange" euler="90 0 0" pos="0 2 0"/></frame>'
    built = hand_on(tmp_path, f'<body name="a"><joint name="j"/><geom size="0.1"/>{flange}</body>')
    assert position(built, "gripper_base_link") == [0.0, 2.0, 1.0]
    hand = built.spec.copy().compile()
    np.testing.assert_allclose(hand.body(built.links["gripper_base_link"]).quat, [0.5**0.5, 0.5**0.5, 0, 0])


@pytest.mark.parametrize(("flange", "height"), [('<site name="flange" pos="0 0 .3"/>', 0.3), ("", 0.0)])
def test_arm_stands_on_the_chassis_and_not_on_a_wheel(tmp_path: Any, flange: str, height: float) -> None:
    wheel = '<body name="{0}" pos="0 {1} 0"><joint name="{0}" axis="0 1 0"/><geom size=".1"/></body>'
    (tmp_path / "cart.xml").write_text(
        f'<mujoco><worldbody><body name="cart"><geom size=".2"/>{flange}{wheel.format("left", 0.5)}'
        f"{wheel.format('right', -0.5)}</body></worldbody></mujoco>"
    )
    built = robot(("chassis", str(tmp_path / "cart.xml")), ("arm", "ur3"))
    assert built.spec.body(built.links["base_link"]).parent.name == "cart"
    assert position(built, "base_link") == [0.0, 0.0, height]


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


def scene(folder: Path, inside: str, **cfg: Any) -> mujoco.MjModel:
    """The physics model of a scene with one articulation, of a file with this content."""
    path = folder / "robot.xml"
    path.write_text(f"<mujoco>{inside}</mujoco>")
    builder = SceneBuilder(SimulationManagerCfg())
    builder.add(ArticulationCfg("a", fpath=str(path), **cfg))
    return builder.compile().model


@pytest.mark.parametrize("own", ["", "<freejoint/>"])
def test_free_base_falls_and_fixed_base_stays(tmp_path: Path, own: str) -> None:
    lump = f'<worldbody><body name="lump">{own}<geom size="0.1" mass="1"/></body></worldbody>'
    heights = {}
    for fix_base in (True, False):
        model = scene(tmp_path, lump, fix_base=fix_base, init_pos=(0.0, 0.0, 2.0))
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
    lump = f'<body name="lump" pos="1 2 3" quat="0 1 0 0">{own}<geom size="0.1" mass="1"/></body>'
    model = scene(tmp_path, f"<worldbody>{lump}</worldbody>", fix_base=False, **pose)
    assert model.key_qpos[0].tolist() == pytest.approx(expected, abs=1e-7)


def test_fixed_base_keeps_its_offset_in_the_file(tmp_path: Path) -> None:
    lump = '<worldbody><body name="lump" pos="0 0 1"><geom size="0.1"/></body></worldbody>'
    model = scene(tmp_path, lump, init_pos=(0.0, 0.0, 2.0))
    assert model.body("a/lump").pos.tolist() == [0, 0, 3]


@pytest.mark.parametrize("size", ['nkey="2" njmax="50" nuser_geom="1"', 'memory="1M"'])
def test_room_that_a_file_reserves_is_no_matter_of_the_scene(
    size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lump = '<worldbody><body name="lump"><geom size="0.1"/></body></worldbody>'
    model = scene(tmp_path, f"<size {size}/>{lump}", fix_base=False, init_pos=(0, 0, 1))
    assert (model.nkey, capsys.readouterr().err) == (1, "")  # the scene's own key


def test_free_base_of_two_roots_is_an_error_that_names_them(tmp_path: Path) -> None:
    two = '<body name="one"><geom size="0.1"/></body><body name="two"><geom size="0.1"/></body>'
    with pytest.raises(ConfigError, match="articulation 'a': fix_base false needs one root, got one, two"):
        scene(tmp_path, f"<worldbody>{two}</worldbody>", fix_base=False)


def test_free_base_with_joints_is_an_error(tmp_path: Path) -> None:
    joints = '<joint name="rootx" type="slide"/><joint name="rooty" axis="0 1 0"/>'
    planar = f'<worldbody><body name="torso">{joints}<geom size="0.1"/></body></worldbody>'
    with pytest.raises(ConfigError, match=r"'torso' has joints that move it: rootx, rooty\. Leave fix_base out"):
        scene(tmp_path, planar, fix_base=False)
    assert scene(tmp_path, planar).nq == 2


# --- The compiled file is the truth ---

LINK = '<geom type="capsule" size=".05" fromto="0 0 0 0 0 -.3"/>'
ARM = f'<body name="b" pos="0 0 1"><joint name="j" axis="0 1 0" range="-1 1"/>{LINK}</body>'


def scene_of(folder: Path, inside: str, **cfg: Any) -> CompiledScene:
    path = folder / "robot.xml"
    path.write_text(f'<mujoco><compiler angle="radian"/>{inside}</mujoco>')
    builder = SceneBuilder(SimulationManagerCfg(physics_dt=0.002))
    builder.add(RobotCfg("r", fpath=str(path), **cfg))
    return builder.compile()


def after(model: mujoco.MjModel, seconds: float) -> mujoco.MjData:
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_step(model, data, round(seconds / model.opt.timestep))
    return data


@pytest.mark.parametrize(
    "defaults",
    [
        '<motor gear="50" ctrllimited="true" ctrlrange="-.2 .2"/>',
        '<general dyntype="filterexact" dynprm=".5" forcerange="-1 1" gainprm="3" biasprm="1 2 3"/>',
        '<position inheritrange="1" kp="7" delay=".01" nsample="3"/>',
    ],
)
def test_defaults_of_a_files_actuators_are_no_drives(tmp_path: Path, defaults: str) -> None:
    inside = f'<worldbody>{ARM}</worldbody><actuator><general name="m" joint="j"/></actuator>'
    with_defaults = scene_of(tmp_path, f"<default>{defaults}</default>{inside}").model
    plain = scene_of(tmp_path, inside).model
    for name in (name for name in dir(plain) if name.startswith("actuator_")):
        np.testing.assert_array_equal(getattr(with_defaults, name), getattr(plain, name), err_msg=name)


def test_rotor_and_friction_of_a_motor_stay_with_its_joint(tmp_path: Path) -> None:
    arm = ARM.replace("range", 'armature=".1" damping=".2" range')
    motor = '<actuator><motor joint="j" gear="2" armature=".5" damping=".3"/></actuator>'
    model = scene_of(tmp_path, f"<worldbody>{arm}</worldbody>{motor}").model
    # Seen through a gear of 2: 0.1 + 4 x 0.5, and 0.2 + 4 x 0.3.
    assert (model.dof_armature[0], model.dof_damping[0]) == pytest.approx((2.1, 1.4))


def test_driven_finger_of_a_coupling_keeps_its_drive(tmp_path: Path) -> None:
    finger = '<body name="f{0}"><joint name="f{0}" type="slide" axis="{1} 0 0"/><geom size=".01" mass=".1"/></body>'
    inside = (
        f"<worldbody>{finger.format(1, 1)}{finger.format(2, -1)}</worldbody>"
        '<equality><joint joint1="f1" joint2="f2" polycoef="0 2 0 0 0"/></equality>'
        '<actuator><position joint="f1" kp="200"/></actuator>'
    )
    model = scene_of(tmp_path, inside, init_qpos=[0.02, 0.0]).model
    assert [model.actuator(i).name for i in range(model.nu)] == ["r/f1"]
    assert model.key_qpos[0].tolist() == [0.02, 0.01]  # f1 = 2 f2, and f1 leads here


def test_shape_without_contact_hides_no_other_shape(tmp_path: Path) -> None:
    sticker = '<geom name="sticker" size=".02" contype="0" conaffinity="0" mass="0"/>'
    scene = scene_of(tmp_path, f"<worldbody>{ARM.replace(LINK, LINK + sticker)}</worldbody>")
    assert scene.visual_model.geom_group.tolist() == [0, 0, 0]


def test_collision_shape_beside_a_visual_one_is_hidden(tmp_path: Path) -> None:
    visual = '<geom size=".02" contype="0" conaffinity="0" group="1"/>'
    other = '<body name="other" pos="1 0 0"><geom size=".1"/></body>'
    scene = scene_of(tmp_path, f"<worldbody>{ARM.replace(LINK, LINK + visual)}{other}</worldbody>")
    assert scene.visual_model.geom_group.tolist() == [0, 3, 1, 0]


LEGGED = """<worldbody>{0}<body name="base" pos="0 0 {1}"><freejoint/>
    <geom type="box" size=".1 .1 .05" mass="3" contype="0" conaffinity="0"/>
    <body name="leg" pos="0 0 -.05"><joint name="j" axis="0 1 0" range="-.1 .1"/>
    <geom name="foot" type="box" size=".15 .15 .02" pos="0 0 -.25" mass=".5" {2}/></body></body></worldbody>"""


def test_foot_that_a_pair_lets_touch_the_floor_touches_ours(tmp_path: Path) -> None:
    untouched = 'contype="0" conaffinity="0"'
    inside = LEGGED.format('<geom name="floor" type="plane" size="0 0 .1"/>', 0.35, untouched)
    pair = '<contact><pair geom1="floor" geom2="foot" friction=".3 .3 .01 .001 .001"/></contact>'
    model = scene_of(tmp_path, inside + pair, fix_base=False).model
    assert model.pair_friction[0].tolist() == [0.3, 0.3, 0.01, 0.001, 0.001]
    assert after(model, 1.0).qpos[2] == pytest.approx(0.32, abs=0.005)  # 5 cm to the leg, 25 to the foot, 2 below


def test_links_without_collisions_have_no_pairs(tmp_path: Path) -> None:
    inside = LEGGED.format('<geom name="floor" type="plane" size="0 0 .1"/><geom name="wall" size=".1"/>', 0.35, "")
    pairs = '<contact><pair geom1="floor" geom2="foot"/><pair geom1="wall" geom2="foot"/></contact>'
    assert scene_of(tmp_path, inside + pairs, fix_base=False).model.npair == 2
    model = scene_of(tmp_path, inside + pairs, fix_base=False, collision_links=["wall"]).model
    assert model.npair == 0


def test_dry_friction_is_the_files_unless_the_config_has_one(tmp_path: Path) -> None:
    arm = ARM.replace("range", 'frictionloss=".4" range')
    for friction, expected in ((None, 0.4), (0.0, 0.0), ({"j": 0.1}, 0.1)):
        drive = JointDrivePropertiesCfg(stiffness=1.0, damping=0.1, friction=friction)
        model = scene_of(tmp_path, f"<worldbody>{arm}</worldbody>", drive_pros=drive).model
        assert model.dof_frictionloss.tolist() == [expected]


def test_limit_below_the_configs_is_listed(tmp_path: Path) -> None:
    arm = ARM.replace("range", 'actuatorfrcrange="-2 5" range')
    drive = JointDrivePropertiesCfg(stiffness=1.0, damping=0.1, max_effort=50.0)
    scene = scene_of(tmp_path, f"<worldbody>{arm}</worldbody>", drive_pros=drive)
    assert "limits of the file below max_effort hold: j (5)" in scene.changes["r"]


def test_springs_and_welds_are_those_of_the_reference_pose_of_the_file(tmp_path: Path) -> None:
    inside = (
        '<worldbody><site name="s0" pos="0 0 2"/><body name="base" pos="0 0 1"><freejoint/><geom size=".1"/>'
        f'<site name="s1"/>{ARM}</body><body name="peg" pos="0 0 1.2"><freejoint/><geom size=".02"/></body></worldbody>'
        '<tendon><spatial name="t" stiffness="5"><site site="s0"/><site site="s1"/></spatial></tendon>'
        '<equality><weld body1="base" body2="peg"/></equality><actuator><motor joint="j"/></actuator>'
        '<keyframe><key qpos="0 0 .5 1 0 0 0 0 0 0 .8 1 0 0 0"/></keyframe>'
    )
    model = scene_of(tmp_path, inside, fix_base=False).model
    assert model.key_qpos[0, [2, 10]].tolist() == [0.5, 0.8]
    assert model.tendon_lengthspring[0].tolist() == [1.0, 1.0]  # not 1.5, as where it begins
    np.testing.assert_allclose(model.eq_data[0, 3:10], [0, 0, 0.2, 1, 0, 0, 0], atol=1e-12)
    # A body welded to the world stays where it is put.
    for names in ('body1="world" body2="base"', 'body1="base"'):
        held = inside.replace('body1="base" body2="peg"', names)
        data = after(scene_of(tmp_path, held, fix_base=False, init_pos=(1.0, 0.0, 0.5)).model, 0.1)
        np.testing.assert_allclose(data.qpos[:3], [1.0, 0.0, 0.5], atol=0.05)


def test_link_named_like_a_flange_is_not_a_site_of_that_name(tmp_path: Path) -> None:
    arm = '<body name="a"><joint name="j"/><geom size=".1"/><body name="tool0" pos="0 0 .5"/></body>'
    other = '<body name="other"><geom size=".1"/><site name="tool0" pos="0 0 .3"/></body>'
    assert position(hand_on(tmp_path, arm + other), "gripper_base_link") == [0.0, 0.0, 0.5]


def test_file_without_a_body_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"robot\.xml' has no body$"):
        scene_of(tmp_path, '<worldbody><geom size=".1"/></worldbody>')


def test_loose_thing_in_a_robots_file_stays_loose(tmp_path: Path) -> None:
    peg = '<body name="peg" pos=".5 0 1"><freejoint/><geom size=".02"/></body>'
    key = '<keyframe><key qpos=".1 .5 0 2 1 0 0 0"/></keyframe>'
    model = scene_of(tmp_path, f"<worldbody>{ARM}{peg}</worldbody>{key}").model
    assert model.key_qpos[0].tolist() == [0.1, 0.5, 0, 2, 1, 0, 0, 0]
    # It falls freely, by g t^2 / 2 = 4.905 x 0.04 m, and the arm's base stays.
    assert after(model, 0.2).body("r/peg").xpos[2] == pytest.approx(2 - 4.905 * 0.04, abs=0.005)
    arm, thing = model.body("r/b").geomadr[0], model.body("r/peg").geomadr[0]
    assert model.geom_contype[thing] & model.geom_conaffinity[arm]  # a hand can push it


def test_keyframe_of_the_file_stands_though_a_coupling_says_else(tmp_path: Path) -> None:
    other = ARM.replace('"b"', '"c"').replace('"j"', '"k"')
    inside = (
        f"<worldbody>{ARM}{other}</worldbody>"
        '<equality><joint joint1="k" joint2="j"/></equality><keyframe><key qpos=".5 .4"/></keyframe>'
    )
    assert scene_of(tmp_path, inside).model.key_qpos[0].tolist() == [0.5, 0.4]


def test_follower_starts_by_its_coupling_and_that_is_listed(tmp_path: Path) -> None:
    other = ARM.replace('"b"', '"c"').replace('"j"', '"k"')
    coupling = '<equality><joint joint1="k" joint2="j" polycoef=".25 1 0 0 0"/></equality>'
    found = scene_of(tmp_path, f"<worldbody>{ARM}{other}</worldbody>{coupling}")
    assert found.model.key_qpos[0].tolist() == [0.0, 0.25]
    assert "joints start where their couplings put them: k" in found.changes["r"]


def test_base_of_several_trees_is_the_one_that_moves_freely(tmp_path: Path) -> None:
    door = f'<body name="door" pos="2 0 1"><joint name="d"/>{LINK}</body>'
    base = f'<body name="base" pos="0 0 1"><freejoint/>{LINK}{ARM}</body>'
    model = scene_of(tmp_path, f"<worldbody>{door}{base}</worldbody>", fix_base=False).model
    held = scene_of(tmp_path, f"<worldbody>{door}{base}</worldbody>").changes["r"]
    assert "fix_base holds what moves freely in the file: base" in held
    assert model.body("r/door").pos.tolist() == [2, 0, 1]
    assert model.body("r/base").jntnum == 1


def test_actuator_of_another_thing_than_a_joint_is_kept(tmp_path: Path) -> None:
    rotor = ARM.replace(LINK, LINK + '<site name="s"/>')
    inside = (
        f"<worldbody>{rotor}</worldbody><keyframe><key ctrl='.3 .4'/></keyframe>"
        '<actuator><position joint="j"/><motor name="j" site="s" gear="0 0 1"/></actuator>'
    )
    model = scene_of(tmp_path, inside).model
    found = {model.actuator(i).name: (model.actuator_trntype[i], model.key_ctrl[0, i]) for i in range(model.nu)}
    site, joint = int(mujoco.mjtTrn.mjTRN_SITE), int(mujoco.mjtTrn.mjTRN_JOINT)
    assert found == {"r/j_actuator": (site, 0.4), "r/j": (joint, 0.0)}


def test_changes_of_a_file_are_listed(tmp_path: Path) -> None:
    inside = f"""<option impratio="2"><flag limit="disable"/></option>
        <worldbody><light/><geom name="floor" type="plane" pos="0 0 -.5" size="1 1 1"/>
        <body name="base"><freejoint/>{LINK}{ARM}</body></worldbody>
        <actuator><motor joint="j"/></actuator><sensor><jointpos joint="j"/></sensor>"""
    assert scene_of(tmp_path, inside).changes["r"] == [
        "sensors of the file are not used: 1",
        "actuators of joints and their gains are replaced by robot.drive_pros of the config: j",
        "lights of the file are not used: 1",
        "the scene's ground replaces the file's: floor, at a height of -0.5 m",
        "links touch everything but each other, and other robots or articulations of their kind",
        "fix_base holds what moves freely in the file: base",
        "options of the file that the scene's replace: disableflags limit, impratio 2.0, integrator euler",
    ]


def test_initial_position_outside_a_joints_range_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^robot 'r'\.init_qpos: joint 'j' at 1\.5 is outside -1 to 1 rad$"):
        scene_of(tmp_path, f"<worldbody>{ARM}</worldbody>", init_qpos=[1.5])


def test_messages_name_what_the_user_has_to_do(tmp_path: Path) -> None:
    xacro = tmp_path / "arm.urdf.xacro"
    xacro.write_text("<robot/>")
    with pytest.raises(ConfigError, match=r"expand it first: xacro arm\.urdf\.xacro > arm\.urdf$"):
        load_model(str(xacro), "robot 'r'")
    path = urdf(tmp_path)
    path.write_text(path.read_text().replace('ixx="0.1"', 'ixx="9"'))
    with pytest.raises(ConfigError, match=r"in a URDF: <mujoco><compiler balanceinertia=\"true\"/></mujoco> inside"):
        load_model(str(path), "robot 'r'")
