"""Environment configs in the layouts of EmbodiChain 0.2.0 to 0.3.2: what each key becomes, and what is refused."""

import copy
from typing import Any

import pytest

from embodichain.ext.upstream.environment import convert_environment, refuse_other_products
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.utils import ConfigError
from tests.lab.layouts import ENVS, Json, env_0_3_0, env_0_3_1


def read(config: Json) -> tuple[Json, list[str]]:
    """Return the config in our layout and its problems."""
    data = copy.deepcopy(config)
    try:
        return convert_environment(data), []
    except ConfigError as error:
        return data, str(error).splitlines()


def action(func: str, **params: Any) -> Json:
    """Return a config with one action term of a robot with two parts."""
    parts = {"arm": ["a", "b"], "hand": ["c"]}
    return {"robot": {"control_parts": parts}, "env": {"actions": {"move": {"func": func, "params": params}}}}


@pytest.mark.parametrize("task", ENVS)
def test_groups_of_physical_properties_are_the_same_scene(task: str) -> None:
    assert config_to_cfg(env_0_3_0(ENVS[task])) == config_to_cfg(ENVS[task])


@pytest.mark.parametrize("task", ENVS)
def test_our_layout_stays_as_it_is_without_a_warning(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert read(ENVS[task]) == (ENVS[task], [])
    found = read(env_0_3_1(ENVS[task]))[0]
    capsys.readouterr()
    assert read(found) == (found, [])
    assert capsys.readouterr().err == ""


THEIR_KEYS = [
    ({"physics_config": {"gravity": [0, 0, -1]}}, {"env": {"sim_cfg": {"gravity": [0, 0, -1]}}}),
    ({"physics_config": {"physics_dt": 0.005}}, {"env": {"sim_cfg": {"physics_dt": 0.005}}}),
    (
        {"physics_config": {"solver_cfg": {"solver_type": "mujoco_warp", "iterations": 9, "njmax": 5}}},
        {"env": {"sim_cfg": {"solver": {"iterations": 9}}}},
    ),
    # 4 steps of 0.01 s, in each of which the engine makes 2 of 0.005 s, are 8 of 0.005 s.
    ({"physics_config": {"num_substeps": 2}}, {"env": {"sim_cfg": {"physics_dt": 0.005}, "sim_steps_per_control": 8}}),
    (
        {"physics_config": {"num_substeps": 2, "physics_dt": 0.008}, "env": {"sim_steps_per_control": 3}},
        {"env": {"sim_cfg": {"physics_dt": 0.004}, "sim_steps_per_control": 6}},
    ),
    ({"physics_config": {"num_substeps": 1, "bounce_threshold": 2.0}}, {}),
    ({"physics_config": {"solver_cfg": {"solver_type": "xpbd", "iterations": 9}}}, {}),  # of another meaning
    ({"physics": "newton", "device": "cuda:0", "headless": True, "arena_space": 3.0, "seed": 7}, {}),
    ({"robot": {"joint_drive_props": {"damping": 2.0}}}, {"robot": {"drive_pros": {"damping": 2.0}}}),
    ({"robot": {"joint_drive_props": {"damping": 2.0, "friction": None}}}, {"robot": {"drive_pros": {"damping": 2.0}}}),
    (
        {"robot": {"root_props": {"fixed_base": False, "min_position_iters": 4, "min_velocity_iters": 1}}},
        {"robot": {"fix_base": False}},
    ),
    ({"robot": {"class_type": "URRobot", "build_pk_chain": False}}, {"robot": {"robot_type": "URRobot"}}),
    (
        {"articulation": [{"uid": "a", "disable_self_collision": True, "asset_physics_mode": "overlay"}]},
        {"articulation": [{"uid": "a"}]},
    ),
    (
        {"articulation": [{"joint_drive_props": {"drive_type": "none", "friction": 0.5}}]},
        {"articulation": [{"drive_pros": {"friction": 0.5, "stiffness": 0.0, "damping": 0.0}}]},
    ),
    (
        {"background": [{"attrs": {"collision_props": {"collision_enabled": False, "backend": "default"}}}]},
        {"background": [{"attrs": {"enable_collision": False}}]},
    ),
    # Their density counts where no mass is given; ours where the mass is 0.
    (
        {"rigid_object": [{"attrs": {"mass_props": {"density": 500.0, "mass": None}}}]},
        {"rigid_object": [{"attrs": {"mass": 0, "density": 500.0}}]},
    ),
    (
        {"rigid_object_group": [{"rigid_objects": {"one": {"attrs": {"mass_props": {"mass": 2.0}}}}}]},
        {"rigid_object_group": [{"rigid_objects": {"one": {"attrs": {"mass": 2.0}}}}]},
    ),
]


@pytest.mark.parametrize(("theirs", "ours"), THEIR_KEYS)
def test_their_key_becomes_ours(theirs: Json, ours: Json) -> None:
    assert read(theirs) == (ours, [])


def test_group_of_attributes_is_one_entry_of_the_warning(capsys: pytest.CaptureFixture[str]) -> None:
    groups = {"mass_props": {"mass": 1.0}, "material_props": {"restitution": 0.0, "static_friction": 1.0}}
    read({"rigid_object": [{"attrs": groups}]})
    assert capsys.readouterr().err.splitlines() == [
        "[WARNING] environment config in another layout (deprecated), read as: rigid_object[0].attrs.mass_props -> "
        "rigid_object[0].attrs, rigid_object[0].attrs.material_props -> rigid_object[0].attrs"
    ]


RENAMED_ACTIONS = [
    (
        "RelativeJointPositionAction",
        {"part_name": "arm", "scale": 0.1},
        "DeltaQposTerm",
        {"part_name": "arm", "scale": 0.1},
    ),
    ("embodichain.lab.gym.envs.managers.actions.JointVelocityAction", {"scale": 2.0}, "QvelTerm", {"scale": 2.0}),
    ("JointEffortAction", {}, "QfTerm", {}),
    ("JointPositionAction", {"offset": 0.0}, "QposTerm", {}),
    ("JointPositionToLimitsAction", {"part_name": "arm"}, "QposDenormalizedTerm", {"part_name": "arm"}),
    # Their defaults: a scale of 1 and actions in [-1, 1]; ours are 0.25 and 10.
    ("DefaultJointPositionAction", {}, "JointPositionTerm", {"scale": 1.0, "limit": 1.0}),
    ("DefaultJointPositionAction", {"clip": 3.0, "scale": 0.5}, "JointPositionTerm", {"scale": 0.5, "limit": 3.0}),
    ("EefPoseAction", {"part_name": "arm"}, "EefPoseTerm", {"part_name": "arm", "pose_dim": 6}),
    (
        "RelativeEefPoseAction",
        {"part_name": "arm", "translation_scale": 0.05, "ik_method": "dls"},
        "EefPoseTerm",
        {"part_name": "arm", "pose_dim": 6, "relative": True, "scale": 0.05, "rotation_scale": 0.1},
    ),
    ("ParallelGripperAction", {"part_name": "hand", "use_joint_limits": True}, "GripperTerm", {"part_name": "hand"}),
]


@pytest.mark.parametrize(("theirs", "params", "ours", "expected"), RENAMED_ACTIONS)
def test_renamed_action_term_has_our_name_and_their_meaning(
    theirs: str, params: Json, ours: str, expected: Json
) -> None:
    found, problems = read(action(theirs, **params))
    assert problems == []
    assert found["env"]["actions"]["move"] == {"func": ours, "params": expected}


@pytest.mark.parametrize(
    ("joints", "part", "parts"),
    [
        (["c"], "hand", {"arm": ["a", "b"], "hand": ["c"]}),
        (["a", "b", "c"], "move", {"arm": ["a", "b"], "hand": ["c"], "move": ["a", "b", "c"]}),
    ],
)
def test_joints_of_an_action_are_a_control_part(joints: list[str], part: str, parts: Json) -> None:
    found, problems = read(action("JointPositionAction", joint_names=joints, preserve_order=True))
    assert problems == []
    assert found["robot"]["control_parts"] == parts
    assert found["env"]["actions"]["move"]["params"] == {"part_name": part}


REFUSED = [
    ({"robot": {"root_props": {"self_collision_enabled": True}}}, "robot.root_props.self_collision_enabled: must be"),
    ({"articulation": [{"asset_physics_mode": "preserve"}]}, "articulation[0].asset_physics_mode: must be 'overlay'"),
    ({"rigid_object": [{"attrs": {"rigid_props": {"has_gravity": False}}}]}, "rigid_object[0].attrs.rigid_props.has_"),
    ({"rigid_object": [{"attrs": {"mass_props": {"com": 1}}}]}, "rigid_object[0].attrs.mass_props.com: has no count"),
    ({"background": [{"attrs": {"mass": 1, "mass_props": {"mass": 2}}}]}, "background[0].attrs.mass_props.mass: is an"),
    ({"robot": {"joint_drive_props": {}, "drive_pros": {}}}, "robot.joint_drive_props: is another form of 'robot.dr"),
    ({"physics_config": 3}, "physics_config: must be an object, got 3"),
    ({"physics_config": {"num_substeps": 0}}, "physics_config.num_substeps: must be a whole number above 0, got 0"),
    (action("RelativeJointPositionAction", clip=0.5), "env.actions.move.params.clip: must be 1.0, got 0.5"),
    (action("DefaultJointPositionAction", clip=None), "env.actions.move.params.clip: must be a number"),
    (action("DefaultJointPositionAction", offset=0.0), "env.actions.move.params.offset: must be left out"),
    (action("JointPositionAction", offset=0.5), "env.actions.move.params.offset: must be 0.0, got 0.5"),
    (action("EefPoseAction", pose_representation="xyz_quat_xyzw"), "env.actions.move.params.pose_representation: must"),
    (action("EefPoseAction", part_name="arm", pose_dim=7), "env.actions.move.params.pose_dim: must be 6, got 7"),
    (action("ParallelGripperAction", use_joint_limits="no"), "env.actions.move.params.use_joint_limits: must be true"),
    (action("JointEffortAction", joint_names=["a"]) | {"robot": {}}, "env.actions.move.params.joint_names: name these"),
]


@pytest.mark.parametrize(("config", "problem"), REFUSED)
def test_what_would_change_the_result_is_refused_in_a_line(config: Json, problem: str) -> None:
    (line,) = read(config)[1]
    assert line.startswith(problem)


@pytest.mark.parametrize(
    "config", [{"robot": 3}, {"robot": [], "env": 3}, {"env": {"actions": [1]}, "rigid_object": 2}]
)
def test_malformed_blocks_are_left_to_the_check(config: Json) -> None:
    assert read(config) == (config, [])


OTHER_PRODUCTS = [
    ({"id": "Mine-v1", "environment": {}, "embodiment": {}, "task_program": {}}, "embodiment: belongs to EmbodiChain"),
    ({"id": "UnitreeGo1FlatRL-v1", "env": {}}, "id: 'UnitreeGo1FlatRL-v1' is a task in EmbodiChain's own code, which"),
]


@pytest.mark.parametrize(("config", "start"), OTHER_PRODUCTS)
def test_other_products_are_refused_in_one_line(config: Json, start: str) -> None:
    for refuse in (refuse_other_products, config_to_cfg):
        with pytest.raises(ConfigError) as caught:
            refuse(config)
        assert str(caught.value).startswith(start)
        assert "\n" not in str(caught.value)
