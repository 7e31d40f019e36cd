"""Converts environment configs of EmbodiChain 0.2.0 to 0.3.2 to our layout; their 0.1 is ours."""

from collections.abc import Mapping
from typing import Any

from embodichain.ext.upstream.translation import Translation
from embodichain.lab.gym.registry import find_env_spec
from embodichain.utils import ConfigError, raise_problems

_TASK_PROGRAMS = ("embodiment", "embodiment_id", "environment_id", "program_id", "task_key", "task_program")
"""Keys of the files of 0.3's task programs: each kind has one of them."""
_THEIR_TASKS = {  # written in EmbodiChain's own code -> nearest task here
    "ANYmalCFlatRL-v1": "configs/agents/rl/go2_flat",
    "HumanoidRun-v1": "the environment 'gymnasium:Humanoid-v5' (docs/gymnasium.md)",
    "MicroDuckFlatRL-v1": "configs/agents/rl/microduck_flat",
    "UnitreeG1FlatRL-v1": "configs/agents/rl/g1_flat",
    "UnitreeGo1FlatRL-v1": "configs/agents/rl/go2_flat",
    "UnitreeGo2FlatRL-v1": "configs/agents/rl/go2_flat",
    "UnitreeH1_2FlatRL-v1": "configs/agents/rl/g1_flat",
}

_TRAINER, _LOOKS, _SOLVER = "the training config decides", "rendering only", "MuJoCo's solver has no such setting"
_UNUSED = {  # at the top of the file; without an effect on learning
    "arena_space": "environments are simulated apart",
    "device": _TRAINER,
    "gpu_id": _TRAINER,
    "headless": _TRAINER,
    "physics": "the physics is MuJoCo's",
    "render_cfg": _LOOKS,
    "renderer": _LOOKS,
    "scene_node_capacity": _LOOKS,
    "seed": _TRAINER,
    "visualization": _LOOKS,
}
_PHYSICS = ("gravity", "physics_dt")  # of physics_config, which are ours in env.sim_cfg
_MUJOCO_SOLVER = ("iterations", "ls_iterations", "tolerance")  # of physics_config.solver_cfg, likewise in solver
_ARTICULATION = {  # 0.3, in a robot or articulation -> our path
    "class_type": "robot_type",
    "joint_drive_props": "drive_pros",
    "root_props.fixed_base": "fix_base",
}
_ARTICULATION_FIXED = {  # fixed values here, and why
    "asset_physics_mode": (("overlay",), "the config's drives replace the file's"),
    "disable_self_collision": ((True,), "links of one robot do not touch each other"),
    "root_props.self_collision_enabled": ((False,), "links of one robot do not touch each other"),
}
_ARTICULATION_UNUSED = {
    "build_pk_chain": "the kinematics are always there",
    "compute_uv": _LOOKS,
    **{
        f"{block}{key}": _SOLVER
        for block in ("", "root_props.")
        for key in ("min_position_iters", "min_velocity_iters", "sleep_threshold")
    },
}
_ATTRS = {  # 0.3, in a rigid body's attrs; the keys are ours, but for the second's
    "mass_props": ("mass", "density"),
    "rigid_props": (
        *("linear_damping", "angular_damping", "max_linear_velocity", "max_angular_velocity", "enable_ccd"),
        *("max_depenetration_velocity", "min_position_iters", "min_velocity_iters", "sleep_threshold"),
    ),
    "collision_props": ("collision_enabled", "contact_offset", "rest_offset"),
    "material_props": ("static_friction", "dynamic_friction", "restitution"),
}
_ATTRS_RENAMED = {"collision_enabled": "enable_collision"}

_ACTIONS: dict[str, tuple[str, dict[str, Any]]] = {  # 0.3.1 -> our term, and its parameters where defaults differ
    "DefaultJointPositionAction": ("JointPositionTerm", {"scale": 1.0, "limit": 1.0}),
    "EefPoseAction": ("EefPoseTerm", {"pose_dim": 6}),
    "JointEffortAction": ("QfTerm", {}),
    "JointPositionAction": ("QposTerm", {}),
    "JointPositionToLimitsAction": ("QposDenormalizedTerm", {}),
    "JointVelocityAction": ("QvelTerm", {}),
    "ParallelGripperAction": ("GripperTerm", {}),
    "RelativeEefPoseAction": ("EefPoseTerm", {"relative": True, "pose_dim": 6, "scale": 0.02, "rotation_scale": 0.1}),
    "RelativeJointPositionAction": ("DeltaQposTerm", {}),
}
_THEIR_ACTIONS = "embodichain.lab.gym.envs.managers.actions."


def refuse_other_products(data: Mapping[str, Any]) -> None:
    """Raise a ConfigError, a line, for a config of a part of EmbodiChain that this package does not have."""
    if found := [key for key in _TASK_PROGRAMS if key in data]:
        raise ConfigError(
            f"{found[0]}: belongs to EmbodiChain's task programs, which this package does not have: a "
            "task here is an environment config with terms (docs/index.md)"
        )
    env_id = data.get("id")
    if isinstance(env_id, str) and env_id in _THEIR_TASKS and find_env_spec(env_id) is None:
        raise ConfigError(
            f"id: '{env_id}' is a task in EmbodiChain's own code, which this package does not have; nearest here: "
            f"{_THEIR_TASKS[env_id]}"
        )


def convert_environment(data: dict[str, Any]) -> dict[str, Any]:
    """Return an environment config's plain data, which are changed, in our layout; warnings name moved keys."""
    refuse_other_products(data)
    translation = Translation(data)
    for path, reason in _UNUSED.items():
        translation.skip(path, reason)
    _read_physics(translation)
    for entity in _entities(translation, "robot", "articulation"):
        _read_articulation(entity)
    for entity in _entities(translation, "rigid_object", "background"):
        _read_attrs(entity)
    for group in _entities(translation, "rigid_object_group"):
        for name, member in _objects(group.get("rigid_objects")):
            _read_attrs(group.inside(f"rigid_objects.{name}", member))
    for name, term in _objects(translation.get("env.actions")):
        _read_action(translation, name, term)
    translation.report("environment config")
    raise_problems(translation.problems)
    return data


def _read_physics(translation: Translation) -> None:
    """Read the block ``physics_config``; its other keys belong to engines without a counterpart."""
    config = translation.take_object("physics_config")
    solver = config.take_object("solver_cfg")
    for key in _PHYSICS:
        if (value := config.take(key)) is not None:
            translation.put(f"env.sim_cfg.{key}", value, f"physics_config.{key}")
    if solver.get("solver_type") == "mujoco_warp":
        for key in _MUJOCO_SOLVER:
            if (value := solver.take(key)) is not None:
                translation.put(f"env.sim_cfg.solver.{key}", value, f"physics_config.solver_cfg.{key}")
    _read_substeps(translation, config.take("num_substeps"))
    for block in (config, solver):
        for key in list(block.data):
            block.skip(key, "MuJoCo has no such setting")


def _read_substeps(translation: Translation, number: Any) -> None:
    """Read the physics steps within each of ``physics_dt``, of which ours are as many more and shorter."""
    if number in (None, 1):
        return
    path = "physics_config.num_substeps"
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        translation.refuse(path, f"must be a whole number above 0, got {number!r}")
        return
    lengths = {"env.sim_cfg.physics_dt": 0.01, "env.sim_steps_per_control": 4}  # of both packages, where not given
    given = (translation.get(key) for key in lengths)
    dt, steps = (default if value is None else value for value, default in zip(given, lengths.values(), strict=True))
    if isinstance(dt, int | float) and isinstance(steps, int):  # else the parse reports their errors
        for key, value in zip(lengths, (dt / number, steps * number), strict=True):
            translation.take(key)
            translation.put(key, value, path, was=number)


def _read_articulation(entity: Translation) -> None:
    if isinstance(drives := entity.get("joint_drive_props"), dict):
        for key in [key for key, value in drives.items() if value is None]:
            del drives[key]
    for old, new in _ARTICULATION.items():
        entity.move(old, new)
    for path, (allowed, reason) in _ARTICULATION_FIXED.items():
        entity.require(path, allowed, reason)
    for path, reason in _ARTICULATION_UNUSED.items():
        entity.skip(path, reason)
    if entity.get("root_props") == {}:
        entity.take("root_props")
    if entity.get("drive_pros.drive_type") == "none":
        entity.take("drive_pros.drive_type")
        for gain in ("stiffness", "damping"):
            entity.take(f"drive_pros.{gain}")
            entity.put(f"drive_pros.{gain}", 0.0, "drive_pros.drive_type", was="none")


def _read_attrs(entity: Translation) -> None:
    """Read the groups of a rigid body's attributes, which are one object here."""
    for group, keys in _ATTRS.items():
        block = entity.take_object(f"attrs.{group}")
        if block.data:
            entity.moved.append(f"{block.place[:-1]} -> {entity.place}attrs")
        block.take("backend")
        if block.get("density") and block.get("mass") is None:
            block.data["mass"] = 0  # ours for a mass from the density
        for key in [key for key in block.data if key in keys]:
            if (value := block.take(key)) is not None:
                entity.set(f"attrs.{_ATTRS_RENAMED.get(key, key)}", value, f"attrs.{group}.{key}")
        block.require("has_gravity", (True,), "all bodies have weight")
        block.skip("recompute_inertia", "the inertia is that of the shape")
        block.skip("retain_acceleration", _SOLVER)
        for key, value in block.data.items():
            if value is not None:
                block.refuse(key, f"has no counterpart here, got {value!r}")


def _read_action(translation: Translation, name: str, term: dict[str, Any]) -> None:
    """Read an action term under its name in 0.3.1, with its parameters."""
    place, func = f"env.actions.{name}", term.get("func")
    if not isinstance(func, str) or func.removeprefix(_THEIR_ACTIONS) not in _ACTIONS:
        return
    theirs = func.removeprefix(_THEIR_ACTIONS)
    term["func"], defaults = _ACTIONS[theirs]
    translation.moved.append(f"{place}.func {theirs!r} -> {term['func']!r}")
    if not isinstance(given := term.setdefault("params", {}), dict):
        return
    params = translation.inside(f"{place}.params", given)
    _read_joints(translation, params, name)
    _read_params(params, theirs)
    for key, value in defaults.items():
        given.setdefault(key, value)


def _read_params(params: Translation, theirs: str) -> None:
    """Read the parameters of an action term that ours does not have."""
    if theirs == "DefaultJointPositionAction":
        if params.data.get("clip", 1.0) is None:
            params.refuse("clip", "must be a number: actions have bounds here")
        if params.take("offset") is not None:
            params.refuse("offset", "must be left out: it is the robot's initial position")
        params.move("clip", "limit")
    if theirs == "RelativeEefPoseAction":
        params.move("translation_scale", "scale")
        for key in ("ik_method", "dls_damping", "max_joint_delta"):
            params.skip(key, "inverse kinematics are damped least squares of a few steps")
    if theirs in ("EefPoseAction", "RelativeEefPoseAction"):
        params.require("pose_dim", (6,), "the pose is a position and three Euler angles")
    if theirs == "ParallelGripperAction":
        params.require("command_mode", ("continuous",), "GripperTerm moves in proportion to the action")
        if params.take("use_joint_limits") is not True:
            params.refuse("use_joint_limits", "must be true: GripperTerm moves between the joints' limits")
    params.require("pose_representation", ("xyz_rpy",), "quaternions are (w, x, y, z) here")
    params.require("clip", (1.0,), "actions are clipped to [-1, 1]")
    params.require("offset", (0.0,), "targets are the scaled action alone")


def _read_joints(translation: Translation, params: Translation, name: str) -> None:
    """Read a term's joints by name as a control part, a new one of the term's name unless there is one of them."""
    params.take("preserve_order")  # the order of a part is the robot's
    if (joints := params.take("joint_names")) is None:
        return
    parts = translation.get("robot.control_parts")
    if not isinstance(parts, dict):
        params.refuse("joint_names", "name these joints as a part in 'robot.control_parts', and that as 'part_name'")
        return
    part = next((part for part, names in parts.items() if names == joints), name)
    if parts.setdefault(part, joints) == joints:
        params.put("part_name", part, "joint_names", was=joints)
    else:
        params.refuse("joint_names", f"'robot.control_parts' has other joints in '{name}': name the term otherwise")


def _entities(translation: Translation, *blocks: str) -> list[Translation]:
    """Return the objects of these blocks, each of which is one object or a list of them."""
    found = []
    for block in blocks:
        value = translation.get(block)
        if isinstance(value, list):
            found += [translation.inside(f"{block}[{i}]", item) for i, item in enumerate(value)]
        else:
            found.append(translation.inside(block, value))
    return found


def _objects(block: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the objects in a block by name."""
    return [(name, item) for name, item in block.items() if isinstance(item, dict)] if isinstance(block, dict) else []
