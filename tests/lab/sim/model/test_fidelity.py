"""Robots in a scene have every number of their plain compiled files, but for what the scene's list of changes says.

Units: m, rad, N, N m.
"""

import os
from pathlib import Path

import mujoco
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.robot_files import build, compare, efforts_of, examine
from embodichain.lab.sim import assets
from embodichain.lab.sim.model.scene import scene_path

LINK = '<geom type="capsule" size=".05" fromto="0 0 0 0 0 -.3"/>'
ARM = f'<body name="b" pos="0 0 1"><joint name="j" axis="0 1 0" range="-90 90"/>{LINK}</body>'
SERVO = '<actuator><position name="a" joint="j" kp="20"/></actuator>'
BASE = '<freejoint/><geom type="box" size=".1 .1 .05" mass="3"/>'
FOOT = '<geom name="foot" type="box" size=".1 .1 .02" pos="0 0 -.3"/>'
LEG = f'<body name="leg"><joint name="j" axis="0 1 0"/>{FOOT}</body>'
THRUST = '<motor site="{0}" gear="0 0 1 0 0 .02" ctrlrange="0 5"/>'
PULLED = (
    f'<site name="s0" pos=".1 0 1"/><body name="b" pos="0 0 1"><joint name="j" axis="0 1 0"/>{LINK}'
    '<site name="s1" pos=".05 0 -.2"/></body>'
)
TENDON = '<tendon><spatial name="t"><site site="s0"/><site site="s1"/></spatial></tendon>'
FINGER = '<body name="{0}"><joint name="{0}" type="slide" axis="{1} 0 0" range="-.03 .03"/><geom size=".01"/></body>'


def world(content: str, rest: str = SERVO, before: str = "") -> str:
    """Return a file of the world's content, with what comes before and after it."""
    return f"<mujoco>{before}<worldbody>{content}</worldbody>{rest}</mujoco>"


CASES = {
    "other_thing": world(ARM + '<body name="peg" pos=".5 0 1"><freejoint/><geom size=".02"/></body>'),
    "asymmetric": world(ARM, '<actuator><position joint="j" kp="20" forcerange="-30 5"/></actuator>'),
    "cloth": world(
        '<flexcomp name="cloth" type="grid" dim="2" count="4 4 1" spacing=".05 .05 .05" pos="0 0 1" mass=".5"'
        ' radius=".005"><pin id="0 3"/><edge equality="true"/></flexcomp>' + ARM
    ),
    "sticker": world(
        '<body name="base" pos="0 0 .4"><geom type="box" size=".2 .1 .05"/>'
        f'<geom type="sphere" size=".02" contype="0" conaffinity="0" mass="0"/>{ARM}</body>'
    ),
    "default_filter": world(
        ARM,
        '<actuator><general joint="j" gainprm="20" biastype="affine" biasprm="0 -20 -2"/></actuator>',
        '<default><general dyntype="filterexact" dynprm=".5"/></default>',
    ),
    "default_motor": world(
        ARM,
        '<actuator><motor joint="j"/></actuator>',
        '<default><motor gear="50" ctrllimited="true" ctrlrange="-.2 .2"/></default>',
    ),
    "drone": world(
        '<body name="x2" pos="0 0 .2"><freejoint/><geom size=".1" mass="1"/><site name="t1"/><site name="t2"/></body>',
        f"<actuator>{THRUST.format('t1')}{THRUST.format('t2')}</actuator>",
    ),
    "group_range": world(
        f'<body name="b"><joint name="j"/>{LINK}<geom group="1" contype="0" conaffinity="0" size=".02"/></body>',
        before='<compiler inertiagrouprange="0 0"/>',
    ),
    "driven_follower": world(
        f'<body name="palm"><geom size=".05"/>{FINGER.format("f1", 1)}{FINGER.format("f2", -1)}</body>',
        '<equality><joint joint1="f1" joint2="f2"/></equality><actuator><position joint="f1" kp="200"/></actuator>',
    ),
    "floor_pair": world(
        f'<geom name="floor" type="plane" size="0 0 .1"/><body name="base" pos="0 0 .35">{BASE}{LEG}</body>',
        f'<contact><pair geom1="floor" geom2="foot"/></contact>{SERVO}',
        '<default><geom contype="0" conaffinity="0"/></default>',
    ),
    "low_floor": world(
        '<geom type="plane" size="1 1 1" pos="0 0 -.5"/><geom type="plane" size="1 1 1" pos="-1 0 0" zaxis="1 0 0"/>'
        f'<body name="box" pos=".5 0 0"><freejoint/>{LINK}</body><site name="goal"/>{ARM}'
    ),
    "podium": world(f'<geom type="box" size="1 1 .25"/><body name="base" pos="0 0 .85">{BASE}{LEG}</body>'),
    "sleep": world(ARM, before='<option><flag sleep="enable"/></option>'),
    "medium": world(
        f'<body name="base" pos="0 0 1">{BASE}{LEG}</body>', before='<option density="1000" viscosity=".0009"/>'
    ),
    "total_mass": world(ARM, before='<compiler settotalmass=".01" boundmass=".1" boundinertia=".01"/>'),
    "key": world(ARM, SERVO + '<keyframe><key name="home" qpos=".7"/><key name="other" qpos=".1"/></keyframe>'),
    "muscle_on_tendon": world(
        PULLED,
        f"{TENDON}<actuator>"
        '<muscle tendon="t" lengthrange=".1 .5" force="100"/><position joint="j" kp="5"/></actuator>',
    ),
    "activated_muscle": world(
        PULLED,
        f"{TENDON}<actuator>"
        '<general joint="j" dyntype="filter" dynprm="1"/><muscle tendon="t" lengthrange=".1 .5" force="100"/>'
        '</actuator><keyframe><key ctrl="0 .3" act=".1 .4" qvel=".2"/></keyframe>',
    ),
}
GYMNASIUM = ("ant", "half_cheetah", "hopper", "humanoid", "pusher_v5", "reacher", "swimmer", "walker2d_v5")


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def verdict(path: Path) -> tuple[str, list[str]]:
    found = examine(path)
    assert found is not None
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_small_robots_are_as_in_their_files(case: str, tmp_path: Path) -> None:
    found, lines = verdict(write(tmp_path / f"{case}.xml", CASES[case]))
    assert found in ("as meant", "listed"), lines


@pytest.mark.parametrize("name", [path.stem for path in sorted(Path(assets.__file__).parent.glob("*.xml"))])
def test_bundled_robots_are_as_in_their_files(name: str) -> None:
    assert verdict(Path(assets.__file__).with_name(f"{name}.xml")) == ("as meant", [])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GYMNASIUM)
def test_robots_of_gymnasium_are_as_in_their_files(name: str) -> None:
    assert verdict(scene_path(f"gymnasium/{name}.xml")) == ("as meant", [])


def test_keyframe_of_an_attached_model_is_its_start(tmp_path: Path) -> None:
    write(tmp_path / "part.xml", CASES["key"])
    asset = '<asset><model name="part" file="part.xml"/></asset>'
    stand = '<body name="stand"><attach model="part" body="b" prefix="p_"/></body>'
    assert verdict(write(tmp_path / "robot.xml", world(stand, "", asset)))[0] == "as meant"


@pytest.mark.parametrize(
    ("actuators", "expected"),
    [
        ('<position joint="j" forcerange="-30 5"/>', (-30, 5)),
        ('<position joint="j" forcerange="-30 5" gear="-2"/>', (-10, 60)),
        ('<motor joint="j" ctrlrange="-.2 .4" gear="50"/>', (-10, 20)),
        ('<general joint="j" gainprm="3" ctrlrange="-2 2" forcerange="-4 9"/>', (-4, 6)),
        ('<general joint="j" biastype="affine" gainprm="3" ctrlrange="-2 2"/>', (-6, 6)),
        ('<motor joint="j" forcerange="-3 3" forcelimited="false"/>', (-np.inf, np.inf)),
        ('<motor joint="j" gear="-50" ctrlrange="-.2 .1"/>', (-5.0, 10.0)),
        ('<motor joint="j" gear="2" ctrlrange="-9 9" forcerange="-3 5"/>', (-6.0, 10.0)),
        ('<motor joint="j" forcelimited="false" forcerange="-1 1" ctrlrange="-4 4"/>', (-4.0, 4.0)),
        ('<motor joint="j" ctrlrange="-4 4"/><motor joint="j" gear="2" ctrlrange="-1 3"/>', (-6.0, 10.0)),
        ('<position joint="j" kp="9" ctrlrange="-1 1"/>', (-np.inf, np.inf)),
        ('<general joint="j" dyntype="filter" gainprm="4" ctrlrange="-1 2"/>', (-4.0, 8.0)),
        ('<motor joint="j" ctrlrange="-99 99"/>', (-40.0, 35.0)),  # the joint's own
    ],
)
def test_effort_is_what_the_files_actuators_can_give(
    actuators: str, expected: tuple[float, float], tmp_path: Path
) -> None:
    own = ' actuatorfrcrange="-40 35"' if "99" in actuators else ""
    text = world(ARM.replace("<joint", f"<joint{own}"), f"<actuator>{actuators}</actuator>")
    path = write(tmp_path / "robot.xml", text)
    plain = mujoco.MjModel.from_xml_string(text)
    np.testing.assert_allclose(efforts_of(plain)[0], expected)
    model = build(str(path), plain).model
    assert bool(model.jnt_actfrclimited[0]) == np.isfinite(expected[0])
    if model.jnt_actfrclimited[0]:
        assert model.jnt_actfrcrange[0] == pytest.approx(expected)
    assert verdict(path) == ("as meant", [])


@pytest.mark.parametrize("name", ["body_mass", "key_qpos", "tendon_range"])
def test_comparison_finds_a_number_that_differs(name: str, tmp_path: Path) -> None:
    text = CASES["muscle_on_tendon"]
    plain = mujoco.MjModel.from_xml_string(text)
    scene = build(str(write(tmp_path / "robot.xml", text)), plain)
    assert compare(plain, scene).silent == []
    getattr(scene.model, name)[-1] += 1e-3
    assert len(compare(plain, scene).silent) == 1


def test_comparison_finds_what_the_list_of_changes_leaves_out(tmp_path: Path) -> None:
    plain = mujoco.MjModel.from_xml_string(CASES["key"])
    scene = build(str(write(tmp_path / "robot.xml", CASES["key"])), plain)
    scene.changes["robot"].clear()
    found = " ".join(compare(plain, scene).silent)
    assert all(text in found for text in ("actuator 'a' is gone", "geom_contype", "key: 1 removed", "option timestep"))


def pick(name: str, *values: str) -> st.SearchStrategy[str]:
    """Return nothing, or an attribute with one of the values and what else they hold."""
    return st.sampled_from(["", *(f" {name}={value}" for value in values)])


GEOM = (
    pick("density", '"300"')
    | pick("group", '"1"', '"3"')
    | pick("contype", '"0" conaffinity="0"')
    | pick("mass", '".4"')
)
JOINT = (
    pick("damping", '"2"') | pick("armature", '".1"') | pick("stiffness", '"3"') | pick("actuatorfrcrange", '"-4 9"')
)
LIMITS = pick("range", '"-.5 .7"', '"-.5 .7" limited="false"', '"-.5 .7" limited="true"')
CONTROL = pick("ctrlrange", '"-2 3"', '"-2 3" ctrllimited="true"', '"-2 3" ctrllimited="false"')
FORCE = pick("forcerange", '"-5 6"', '"-5 6" forcelimited="true"', '"-5 6" forcelimited="false"')
GEAR = pick("gear", '"7"', '"-3"', '".5"')
KIND = st.sampled_from(["motor", "position", "velocity", "general"])
COMPILER = pick("autolimits", '"false"') | pick("settotalmass", '"7"') | pick("inertiagrouprange", '"0 1"')
DEFAULT = st.sampled_from(["", 'gear="4"', 'ctrlrange="-.2 .2"', 'forcerange="-3 3"', 'dyntype="filter"'])
COUPLING = '<equality><joint joint1="j2" joint2="j1" polycoef="0 .5 0 0 0"/></equality>'
FLOORS = st.sampled_from(["", '<geom type="plane" size="1 1 .1"/>', '<geom type="box" size="1 1 .1"/>'])


@st.composite
def robots(draw: st.DrawFn) -> str:
    """Return a file of two or three joints: defaults, units, couplings, two actuators on a joint, a keyframe."""
    names = ["j1", "j2", "j3"][: draw(st.integers(2, 3))]
    bodies = ""
    for name in reversed(names):
        geoms = "".join(f'<geom type="box" size=".02 .03 .1"{draw(GEOM)}/>' for _ in range(draw(st.integers(1, 2))))
        kind = draw(st.sampled_from(["hinge", "slide"]))
        joint = f'<joint name="{name}" type="{kind}" axis="0 1 0"{draw(JOINT)}{draw(LIMITS)}/>'
        body = f'<body pos=".1 0 .5" euler="10 0 0">{joint}<geom size=".02"/>{geoms}'
        bodies = f"{body}</body>{bodies}" if draw(st.booleans()) else f"{body}{bodies}</body>"
    if is_free := draw(st.booleans()):
        bodies = f'<body name="base" pos="0 0 .6"><freejoint/><geom size=".1"/>{bodies}</body>'
    actuators = ""
    for name in (*names[:2], *names[: draw(st.integers(0, 1))]):
        kind = draw(KIND)
        own = {"position": ' kp="8"', "velocity": ' kv="2"', "general": ' gainprm="3"'}.get(kind, "")
        actuators += f'<{kind} joint="{name}"{own}{draw(CONTROL)}{draw(FORCE)}{draw(GEAR)}/>'
    qpos = "0 0 .9 0 1 0 0 " * is_free + ".2 " * len(names)
    key = f'<keyframe><key qpos="{qpos}"/></keyframe>' if draw(st.booleans()) else ""
    rest = f"{COUPLING * draw(st.booleans())}<actuator>{actuators}</actuator>{key}"
    default = f"<default><geom{draw(GEOM)}/><joint{draw(JOINT)}/><general {draw(DEFAULT)}/></default>"
    units = ' angle="radian"' * draw(st.booleans()) + ' inertiafromgeom="true"' * draw(st.booleans())
    medium = '<option density="1.2" wind="1 0 0"/>' * draw(st.booleans())
    return world(draw(FLOORS) + bodies, rest, f"<compiler{draw(COMPILER)}{units}/>{medium}{default}")


@pytest.mark.filterwarnings("ignore")
@settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "40")),
    derandomize="FUZZ_EXAMPLES" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(text=robots())
def test_generated_robots_are_as_in_their_files(text: str, tmp_path: Path) -> None:
    found, lines = examine(write(tmp_path / "robot.xml", text)) or ("not compiled", [])
    assert found in ("as meant", "listed", "not compiled"), lines
