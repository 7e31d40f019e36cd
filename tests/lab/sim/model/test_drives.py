"""Which joints a config means, and the drives they get."""

import mujoco
import pytest

from embodichain.lab.sim.cfg import JointDrivePropertiesCfg
from embodichain.lab.sim.model.drives import limit_collisions, match_driven, match_names, set_drives
from embodichain.utils import ConfigError

NAMES = ["ab", "abc", "b"]


def test_names_are_matched_whole_and_returned_in_their_own_order() -> None:
    assert match_names(["b", "ab"], NAMES, "here") == ["ab", "b"]
    assert match_names(["a.*"], NAMES, "here") == ["ab", "abc"]
    with pytest.raises(ConfigError, match="here: unknown joint 'a'"):
        match_names(["a"], NAMES, "here")


UR = ["shoulder_pan_joint", "shoulder_lift_joint", "elbow_joint", "wrist_1_joint", "wrist_2_joint", "wrist_3_joint"]


def test_joints_of_a_ur_arm_answer_to_their_numbers_too() -> None:
    names = [*UR, "gripper_joint"]
    assert match_names(["JOINT[1-6]"], names, "here") == UR
    assert match_names(["JOINT3", "wrist_2_joint"], names, "here") == ["elbow_joint", "wrist_2_joint"]
    assert match_names(["(JOINT1|gripper).*"], names, "here") == ["shoulder_pan_joint", "gripper_joint"]
    assert match_driven(["JOINT4"], names, {"gripper_joint"}, "here") == ["wrist_1_joint"]
    assert match_names([".*1.*"], names, "here") == ["wrist_1_joint"]  # without the word: the names alone
    with pytest.raises(
        ConfigError, match=r"here: unknown joint 'JOINT7'\. Known: elbow_joint, gripper_joint, shoulder"
    ):
        match_names(["JOINT7"], names, "here")


def test_alias_of_a_ur_joint_has_its_arms_side() -> None:
    both = [f"{side}_{joint}" for side in ("left", "right") for joint in UR]
    assert match_names(["right_JOINT1"], both, "here") == ["right_shoulder_pan_joint"]
    assert match_names([".*_JOINT[12]"], both, "here") == [*both[:2], *both[6:8]]
    for other in (["elbow_joint", "shoulder_pan_joint"], NAMES):
        with pytest.raises(ConfigError, match="unknown joint 'JOINT1'"):
            match_names(["JOINT1"], other, "here")
    with pytest.raises(ConfigError, match="unknown link 'JOINT1'"):
        match_names(["JOINT1"], UR, "here", "link")


def test_pattern_leaves_out_joints_without_a_drive() -> None:
    assert match_driven(["a.*", "b"], NAMES, {"abc"}, "here") == ["ab", "b"]
    with pytest.raises(ConfigError, match=r"here: abc cannot be driven: .* Driven are: ab, b"):
        match_driven(["b", "abc"], NAMES, {"abc"}, "here")


def test_drive_is_a_position_actuator_with_the_name_of_its_joint() -> None:
    spec = mujoco.MjSpec.from_string(
        '<mujoco><worldbody><body><joint name="x/q"/><joint name="p" axis="1 0 0"/><geom size="1"/></body>'
        "</worldbody></mujoco>"
    )
    drive = JointDrivePropertiesCfg(
        stiffness={"q": 3.0}, damping=0.5, max_effort=7.0, friction=0.25, armature={"q": 0.5}
    )
    set_drives(spec, {"q": "x/q", "p": "p"}, {"p"}, drive, "here")
    model = spec.compile()
    assert [model.actuator(i).name for i in range(model.nu)] == ["x/q"]
    assert model.actuator_gainprm[0, 0] == 3
    assert model.actuator_biasprm[0, :3].tolist() == [0, -3, -0.5]
    assert model.actuator_forcerange[0].tolist() == [-7, 7]
    assert model.dof_frictionloss.tolist() == [0.25, 0]
    assert model.dof_armature.tolist() == [0.5, 0]


def test_joint_with_one_gain_of_two_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    joints = '<joint name="p"/><joint name="q" axis="1 0 0"/>'
    spec = mujoco.MjSpec.from_string(f'<mujoco><worldbody><body>{joints}<geom size="1"/></body></worldbody></mujoco>')
    drive = JointDrivePropertiesCfg(stiffness={"p": 60.0}, damping={".*": 3.0})
    set_drives(spec, {"p": "p", "q": "q"}, set(), drive, "robot 'r'")
    (line,) = caplog.messages
    assert line == "robot 'r'.drive_pros.stiffness: not given for q: the default, 10000"


def test_without_an_armature_that_of_the_file_stays() -> None:
    spec = mujoco.MjSpec.from_string(
        '<mujoco><worldbody><body><joint name="p" armature="0.1"/><joint name="q" armature="0.2"/>'
        '<geom size="1"/></body></worldbody></mujoco>'
    )
    set_drives(spec, {"p": "p", "q": "q"}, (), JointDrivePropertiesCfg(armature={"q": 0.0}), "here")
    assert spec.compile().dof_armature.tolist() == [0.1, 0.0]


LINKS = {"trunk": "x/trunk", "calf": "x/calf", "bare": "x/bare"}
ALL = {"trunk_shape", "shin", "foot"}


def touching(*patterns: str) -> set[str]:
    """The names of the shapes that still touch."""
    spec = mujoco.MjSpec.from_string(
        '<mujoco><worldbody><body name="x/trunk"><geom name="trunk_shape" size="1"/>'
        '<geom name="seen" size="1" contype="0" conaffinity="0"/><body name="x/calf"><geom name="shin" size="1"/>'
        '<geom name="foot" size="1"/></body><body name="x/bare"/></body></worldbody></mujoco>'
    )
    limit_collisions(spec, LINKS, [], patterns, "here")
    return {geom.name for geom in spec.geoms if geom.contype or geom.conaffinity}


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ((".*",), ALL),
        (("calf",), {"shin", "foot"}),
        (("foot",), {"foot"}),
        (("trunk", "fo+t"), {"trunk_shape", "foot"}),
        ((), set()),
    ],
)
def test_only_named_links_and_named_shapes_touch(patterns: tuple[str, ...], names: set[str]) -> None:
    assert touching(*patterns) == names


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("foott", r"here: unknown link or collision shape 'foott'\. Did you mean 'foot'\? Known: calf, foot, shin, tr"),
        ("bare", "here: unknown link or collision shape 'bare'"),  # a link without a collision shape
        ("seen", "here: unknown link or collision shape 'seen'"),  # a shape without collisions
        ("fo(t", r"here: 'fo\(t' is no regular expression"),
    ],
)
def test_pattern_without_a_collision_shape_is_an_error(pattern: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        touching(pattern)
