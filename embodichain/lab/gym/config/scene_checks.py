"""Checks of a scene's typed config before it is built, and the names that the scene will have."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from embodichain.lab.gym.envs.config_data import SCENE_KEYS
from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv
from embodichain.lab.gym.envs.env_cfg import EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.scene_names import SceneNames
from embodichain.lab.sim.cfg import ArticulationCfg, LightCfg, RigidObjectCfg, RigidObjectGroupCfg, RobotCfg
from embodichain.lab.sim.model.checks import (
    asset_of_robot_type,
    check_asset,
    check_components,
    check_plane,
    check_uid,
    mesh_path,
)
from embodichain.lab.sim.sensors.cfg import CameraCfg, ContactSensorCfg, StereoCameraCfg
from embodichain.lab.sim.shapes import MeshCfg, PlaneCfg
from embodichain.utils.configclass import MISSING, replace
from embodichain.utils.errors import collected

_SCENE_HOOKS = ("_setup_robot", "_prepare_scene", "_setup_sensors")
_OBSERVATION_HOOKS = ("_base_obs", "_extend_obs")


def entities_in_config(cfg: EmbodiedEnvCfg) -> Iterator[tuple[str, Any]]:
    """Yield path and config of each entity of a scene; members of a group have their uids in the scene."""
    if cfg.robot is not None:
        yield "robot", cfg.robot
    for key in ("background", "rigid_object", "articulation", "sensor", "rigid_object_group"):
        yield from ((f"{key}[{i}]", entity) for i, entity in enumerate(getattr(cfg, key)))
    yield from ((f"light.direct[{i}]", light) for i, light in enumerate(cfg.light.direct))
    for i, group in enumerate(cfg.rigid_object_group):
        if group.folder_path is None and is_given(group.uid) and is_given(group.rigid_objects):
            for name, member in group.rigid_objects.items():
                yield f"rigid_object_group[{i}].rigid_objects.{name}", replace(member, uid=f"{group.uid}_{name}")


def component_kinds(robot: RobotCfg) -> list[str]:
    """Return the kinds of a robot's parts (``arm``, ``hand``, ...)."""
    has_arm = robot.robot_type is not None or robot.fpath is not None
    components = [] if robot.urdf_cfg is None else robot.urdf_cfg.components
    return list(dict.fromkeys([*["arm"] * has_arm, *(component.component_type for component in components)]))


def scene_problems(cfg: EmbodiedEnvCfg, wrong: Collection[str] = ()) -> list[str]:
    """Return the problems of a scene's entities beyond their types, a line each.

    Args:
        cfg: the environment's config; what has no value is passed over.
        wrong: paths of what is left out of it, since its type is wrong.
    """
    problems: list[str] = []
    taken: set[str] = set()
    for place, entity in entities_in_config(cfg):
        if is_given(entity.uid):
            with collected(problems, f"{place}.uid: "):
                check_uid(entity.uid, taken)
            taken.add(entity.uid)
        if isinstance(entity, RigidObjectCfg):
            _check_shape(entity, place, wrong, problems)
        if isinstance(entity, ArticulationCfg):
            _check_files(entity, place, problems)
        if isinstance(entity, RobotCfg):
            _check_robot(entity, wrong, problems)
    return problems


def _check_shape(body: RigidObjectCfg, place: str, wrong: Collection[str], problems: list[str]) -> None:
    if isinstance(body.shape, MeshCfg) and is_given(body.shape.fpath):
        with collected(problems, f"{place}.shape.fpath: "):
            mesh_path(body.shape.fpath)
    is_known = not place.startswith("background") and f"{place}.body_type" not in wrong
    if isinstance(body.shape, PlaneCfg) and is_known:
        with collected(problems, f"{place}.body_type: "):
            check_plane(body.body_type)


def _check_files(articulation: ArticulationCfg, place: str, problems: list[str]) -> None:
    files = {f"{place}.fpath": articulation.fpath}
    if isinstance(articulation, RobotCfg) and articulation.urdf_cfg is not None:
        components = enumerate(articulation.urdf_cfg.components)
        files |= {f"{place}.urdf_cfg.components[{i}].urdf_path": part.urdf_path for i, part in components}
    for path, name in files.items():
        if name is not None and is_given(name):
            with collected(problems, f"{path}: "):
                check_asset(name)


def _check_robot(robot: RobotCfg, wrong: Collection[str], problems: list[str]) -> None:
    if robot.robot_type is not None:
        with collected(problems, "robot.robot_type: "):
            asset_of_robot_type(robot.robot_type, robot.ur_type)
    if not any(path == "robot" or path.startswith(("robot.robot_type", "robot.fpath", "robot.urdf")) for path in wrong):
        with collected(problems, "robot: "):
            check_components(component_kinds(robot))


def is_given(value: Any) -> bool:
    """Return whether a required value of a config is there."""
    return value is not MISSING


def names_in_config(cfg: EmbodiedEnvCfg, env_class: type | None, wrong: Collection[str] = ()) -> SceneNames:
    """Return the names that an environment's terms may use, as far as its config determines them.

    Args:
        env_class: of the environment; None where it is not known.
        wrong: paths of what is left out of the config, since its type is wrong.
    """
    if env_class is None or not issubclass(env_class, EmbodiedEnv):
        return SceneNames(None, None, None)
    declared = _declared(env_class, "base_entries", _OBSERVATION_HOOKS)
    commands = None if any(path.startswith("env.commands") for path in wrong) else frozenset(cfg.commands)
    cameras = [sensor for sensor in cfg.sensor if isinstance(sensor, CameraCfg)]
    entries = None if declared is None else frozenset([*declared, *_images(cameras)])
    added = _declared(env_class, "added_uids", _SCENE_HOOKS)
    uids = {entity.uid for _, entity in entities_in_config(cfg)}
    # The members of a group that are named by files are looked at when the scene is built.
    is_open = any(group.folder_path is not None for group in cfg.rigid_object_group)
    is_whole = MISSING not in uids and not {*SCENE_KEYS, "light.direct"} & set(wrong)
    if added is None or cfg.robot is None or is_open or not is_whole:
        return SceneNames(None, None, entries, commands=commands)
    # What a class adds may be sensors as well.
    seen = frozenset([*added, *(camera.uid for camera in cameras)])
    contacts = frozenset([*added, *(sensor.uid for sensor in cfg.sensor if isinstance(sensor, ContactSensorCfg))])
    kinds = _kinds(cfg, added)
    return SceneNames(frozenset([*uids, *added]), _parts(cfg.robot, wrong), entries, seen, contacts, commands, kinds)


def _kinds(cfg: EmbodiedEnvCfg, added: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return the uids of each kind of entity; what a class adds may be of any."""
    # Of two with one uid, which is an error of its own, both count.
    entities = [(entity.uid, entity) for _, entity in entities_in_config(cfg)]

    def of(cls: type) -> frozenset[str]:
        return frozenset([*added, *(uid for uid, entity in entities if isinstance(entity, cls))])

    jointed, robots = of(ArticulationCfg), of(RobotCfg)
    return {
        "rigid object": of(RigidObjectCfg),
        "rigid object group": of(RigidObjectGroupCfg),
        "articulation": (jointed - robots).union(added),
        "robot": robots,
        "articulation or robot": jointed,
        "light": of(LightCfg),
    }


def needed_problems(env_class: type | None, names: SceneNames) -> list[str]:
    """Return the problems of entities that a task needs and its config does not have, a line each."""
    if env_class is None or not issubclass(env_class, EmbodiedEnv) or names.kinds is None:
        return []
    needed = env_class.needed_uids.items()
    return [f"{env_class.__name__} needs a {kind} '{uid}'" for uid, kind in needed if uid not in names.kinds[kind]]


def has_config_robot(env_class: type | None) -> bool:
    """Return whether an environment's robot is that of its config."""
    if env_class is None or not issubclass(env_class, EmbodiedEnv):
        return False
    return env_class._setup_robot is EmbodiedEnv._setup_robot


def _declared(env_class: type[EmbodiedEnv], name: str, hooks: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names that a class declares, or None where a subclass overrides a hook without declaring them."""
    for cls in env_class.__mro__:
        if name in vars(cls):
            declared: tuple[str, ...] = getattr(env_class, name)
            return declared
        if any(hook in vars(cls) for hook in hooks):
            return None
    return None


def _images(cameras: Sequence[CameraCfg]) -> Iterator[str]:
    """Yield the observation's entries of a config's cameras."""
    for camera in cameras:
        kinds = [kind for kind in ("color", "depth", "mask") if getattr(camera, f"enable_{kind}")]
        if isinstance(camera, StereoCameraCfg):
            kinds += [f"{kind}_right" for kind in kinds] + ["disparity"] * camera.enable_disparity
        yield from (f"sensor/{camera.uid}/{kind}" for kind in kinds)


def _parts(robot: RobotCfg, wrong: Collection[str]) -> dict[str, frozenset[str]] | None:
    """Return the control parts of the config's robot, by its name; without any, the scene makes one of each component.

    None where what would say so is left out of the config.
    """
    if any(path.startswith(("robot.control_parts", "robot.urdf_cfg")) for path in wrong):
        return None
    return {robot.uid: frozenset(component_kinds(robot) if robot.control_parts is None else robot.control_parts)}
