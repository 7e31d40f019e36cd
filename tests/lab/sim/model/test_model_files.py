"""Makers' files: URDF and MJCF, with meshes, mimic joints and actuators of their own. Units: m, rad, Nm."""

from __future__ import annotations

import sys
import types
import warnings
from pathlib import Path

import mujoco
import numpy as np
import pytest

from embodichain.lab.sim.assets import asset_spec
from embodichain.lab.sim.cfg import ArticulationCfg, RobotCfg, SimulationManagerCfg
from embodichain.lab.sim.model.model_files import ModelFile, load_model
from embodichain.lab.sim.model.scene import SceneBuilder, scene_path
from embodichain.utils import ConfigError
from tests.lab.scenes import TETRAHEDRON

INERTIAL = '<inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'


def mesh(kind: str, name: str) -> str:
    return f'<{kind}><geometry><mesh filename="{name}"/></geometry></{kind}>'


def urdf(folder: Path, link: str = "", joint: str = "", name: str = "robot.urdf") -> Path:
    """Write a robot of two hinges, the second of which follows the first: q2 = 0.1 - 2 q1."""
    path = folder / name
    path.write_text(
        f"""<robot name="r"><link name="base">{INERTIAL}{link}</link>
        <link name="one">{INERTIAL}</link><link name="two">{INERTIAL}</link><link name="tool0"/>
        <joint name="j1" type="revolute"><parent link="base"/><child link="one"/><axis xyz="0 0 1"/>
          <limit lower="-1" upper="1.5" effort="5" velocity="2"/><dynamics damping="0.3" friction="0.2"/></joint>
        <joint name="j2" type="revolute"><parent link="one"/><child link="two"/><axis xyz="0 0 1"/>
          <limit lower="-3" upper="3" effort="4" velocity="2"/><mimic joint="j1" multiplier="-2" offset="0.1"/>{joint}
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


def test_start_without_keyframe_is_the_first_bodys_pose(tmp_path: Path) -> None:
    loaded = mjcf(tmp_path, '<worldbody><body pos="1 2 3" quat="0 1 0 0"><geom size="0.1"/></body></worldbody>')
    assert loaded.start.tolist() == pytest.approx([1, 2, 3, 0, 1, 0, 0])


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


GYMNASIUMS = sorted(scene_path("gymnasium/ant.xml").parent.glob("*.xml"))


@pytest.mark.parametrize("path", GYMNASIUMS, ids=lambda path: path.stem)
def test_models_of_gymnasium_are_robots_with_their_own_masses(path: Path) -> None:
    builder = SceneBuilder(SimulationManagerCfg())
    builder.add(RobotCfg("robot", fpath=str(path)))
    scene = builder.compile()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated attributes
        theirs = mujoco.MjModel.from_xml_path(str(path))
    for model in (scene.model, scene.visual_model):
        for body in range(1, theirs.nbody):
            own = model.body(f"robot/{theirs.body(body).name or f'body{body}'}")
            np.testing.assert_allclose(own.mass, theirs.body(body).mass, rtol=1e-12)
            np.testing.assert_allclose(own.inertia, theirs.body(body).inertia, rtol=1e-9)
            np.testing.assert_allclose(own.ipos, theirs.body(body).ipos, atol=1e-12)


def test_floor_and_lights_of_a_file_are_left_to_the_scene(tmp_path: Path) -> None:
    inside = """<worldbody><light name="sun"/><geom name="floor" type="plane" size="1 1 1"/>
        <geom name="post" size="0.1"/>
        <body name="a"><light name="lamp"/><joint name="j"/><geom name="g" size="0.1"/></body></worldbody>
        <contact><pair geom1="floor" geom2="g"/><pair geom1="post" geom2="g"/></contact>"""
    model = mjcf(tmp_path, inside).spec.compile()
    assert [model.geom(i).name for i in range(model.ngeom)] == ["post", "g"]
    assert (model.nlight, model.npair) == (0, 1)


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
