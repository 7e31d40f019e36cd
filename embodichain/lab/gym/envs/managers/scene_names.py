"""Names of scene entities in terms, checked when a config is read and when an environment is built."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from embodichain.lab.gym.envs.managers import types
from embodichain.lab.gym.envs.managers.base import TermEnv
from embodichain.lab.sim.cfg import ArticulationCfg, LightCfg, RigidObjectCfg, RigidObjectGroupCfg, RobotCfg
from embodichain.lab.sim.model.drives import match_names
from embodichain.lab.sim.model.scene import EntityCfg
from embodichain.lab.sim.sensors import CameraCfg, ContactSensorCfg
from embodichain.utils import collected, nearest

_KINDS: dict[str, type | tuple[type, ...]] = {
    "": object,
    "rigid object": RigidObjectCfg,
    "rigid object group": RigidObjectGroupCfg,
    "articulation": ArticulationCfg,
    "robot": RobotCfg,
    "articulation or robot": ArticulationCfg,
    "light": LightCfg,
    "camera": CameraCfg,
    "contact sensor": ContactSensorCfg,
}


@dataclass(frozen=True)
class SceneNames:
    """Names that terms may use; those that are only known once the environment is built are left out.

    Attributes:
        uids: of the entities of each kind (``SceneEntityCfg.kind``; "": any), and the names in ``env.commands``.
        parts: control parts of each robot, by its uid.
        entries: the base observation's, by slash-separated name; None: not known.
        robot: uid of the environment's robot.
        joints: joints of robots and articulations, in their order, by uid.
        links: their links, likewise.
        sensed: links of contact sensors, in their order, by uid.
    """

    uids: Mapping[str, frozenset[str]] = field(default_factory=dict)
    parts: Mapping[str, Collection[str]] = field(default_factory=dict)
    entries: frozenset[str] | None = None
    robot: str | None = None
    joints: Mapping[str, Sequence[str]] = field(default_factory=dict)
    links: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sensed: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, env: TermEnv) -> Self:
        """Return the names of a built scene."""
        builder, robot = env.sim.builder, env.robot.uid if env.sim.robots else None
        uids = uids_by_kind(builder.entities.values())
        uids |= {"": frozenset(env.sim.entity_uids), "command": frozenset(env.cfg.commands)}
        return cls(uids, builder.parts, None, robot, **builder.names())


def uids_by_kind(entities: Iterable[EntityCfg], added: Iterable[str] = ()) -> dict[str, frozenset[str]]:
    """Return the uids of each kind of entity.

    Args:
        added: uids of entities that a task adds, which may be of any kind.
    """
    entities = list(entities)
    found = {
        kind: frozenset([*added, *(cfg.uid for cfg in entities if isinstance(cfg, cls))])
        for kind, cls in _KINDS.items()
    }
    found["articulation"] -= found["robot"] - frozenset(added)
    return found


def name_problems(params: Mapping[str, Any], place: str, names: SceneNames) -> list[str]:
    """Return the problems of a term's converted parameters that name things missing in the scene, a line each."""
    return [*_unknown_entities(params, place, names), *_model_problems(params, place, names)]


def _unknown_entities(params: Mapping[str, Any], place: str, names: SceneNames) -> Iterator[str]:
    robot = params.get("robot_uid")
    for path, kind, value in _mentions(params, place):
        known, of = names.uids.get(kind), "config's env.commands" if kind == "command" else "scene"
        if kind == "control part":
            parts = [parts for uid, parts in names.parts.items() if robot in (None, uid)]
            known = frozenset().union(*parts) if parts else None
            of = f"robot '{robot or next(iter(names.parts), '')}'"
        elif kind == "camera" and known is not None:
            known |= {types.ALL_SENSORS}
        if known is not None and value not in known and (kind, value) != ("", types.GROUND_UID):
            there = ", ".join(sorted(known)) or "none"
            yield f"{path}: no {kind and kind + ' '}'{value}' in the {of}.{nearest(value, known)} There are: {there}"


def _mentions(params: Mapping[str, Any], place: str) -> Iterator[tuple[str, str, str]]:
    """Yield path, kind and value of each name of an entity."""
    for key, value in params.items():
        is_list = isinstance(value, (list, tuple))
        for i, item in enumerate(value if is_list else [value]):
            path = f"{place}.{key}[{i}]" if is_list else f"{place}.{key}"
            match item:
                case types.CameraEntityCfg():
                    yield f"{path}.uid", "camera", item.uid
                case types.SceneEntityCfg():
                    yield f"{path}.uid", item.kind, item.uid
                case dict():
                    yield from ((f"{path}.{uid}", "camera", uid) for uid in item if isinstance(uid, types.CameraUid))
                case types.CameraUid():
                    yield path, "camera", item
                case types.ContactSensorUid():
                    yield path, "contact sensor", item
                case types.CommandKey():
                    yield path, "command", item
                case str() if key == "robot_uid":
                    yield path, "robot", item
                case str() if key.endswith("part_name"):
                    yield path, "control part", item
                case str() if key == "uids" or key.endswith(("_uid", "_uids", "_uid_list")):
                    yield path, "", item


def _model_problems(params: Mapping[str, Any], place: str, names: SceneNames) -> list[str]:
    """Return the problems of joints and links that are not there, and of a wrong number of values for them."""
    problems: list[str] = []
    for key, value in params.items():
        path = f"{place}.{key}"
        with collected(problems):
            if isinstance(value, types.SceneEntityCfg):
                if value.joint_names is not None and value.uid in names.joints:
                    match_names(_patterns(value.joint_names), names.joints[value.uid], f"{path}.joint_names")
                if value.link_names is not None and value.uid in names.links:
                    match_names(value.link_names, names.links[value.uid], f"{path}.link_names", "link")
            elif isinstance(value, dict) and (joints := names.joints.get(names.robot or "")):
                match_names([name for name in value if isinstance(name, types.JointPattern)], joints, path)
            elif isinstance(value, types.LinkNumbers):
                sensor = next((uid for uid in params.values() if isinstance(uid, types.ContactSensorUid)), "")
                if sensor in names.sensed:
                    problems += _count_problem(path, value, names.sensed[sensor], f"links of sensor '{sensor}'")
    return problems if problems else _joint_number_problems(params, place, names)


def _joint_number_problems(params: Mapping[str, Any], place: str, names: SceneNames) -> list[str]:
    """Return the problems of indices of joints and of ranges with numbers for each joint."""
    entity = next((value for value in params.values() if isinstance(value, types.SceneEntityCfg)), None)
    joints = names.joints.get((params.get("robot_uid") or names.robot or "") if entity is None else entity.uid)
    if joints is None:
        return []
    ids = {key: value for key, value in params.items() if isinstance(value, types.JointNumbers)}
    for key, value in ids.items():
        if wrong := [joint for joint in value if not 0 <= joint < len(joints)]:
            there = ", ".join(f"{i} ({name})" for i, name in enumerate(joints))
            return [f"{place}.{key}: no joint {wrong[0]}. There are: {there}"]
        joints = [joints[joint] for joint in value]
    if not ids and entity is not None and entity.joint_names is not None:
        joints = match_names(_patterns(entity.joint_names), joints, place)
    return [
        problem
        for key, value in params.items()
        if isinstance(value, types.JointRanges) and len(value[0]) != 1
        for problem in _count_problem(f"{place}.{key}", value[0], joints, "joints")
    ]


def _patterns(given: list[str] | str) -> list[str]:
    return [given] if isinstance(given, str) else given


def _count_problem(path: str, values: Sequence[float], of: Sequence[str], what: str) -> list[str]:
    if len(values) == len(of):
        return []
    return [f"{path}: has {len(values)} values for {len(of)} {what}: {', '.join(of)}"]
