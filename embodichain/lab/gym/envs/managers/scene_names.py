"""Names of scene entities in terms, checked when a config is read and when an environment is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embodichain.lab.gym.envs.managers.base import TermEnv
from embodichain.lab.gym.envs.managers.cfg import (
    ALL_SENSORS,
    GROUND_UID,
    CameraEntityCfg,
    CameraUid,
    CommandKey,
    ContactSensorUid,
    JointNumbers,
    JointPattern,
    JointRanges,
    LinkNumbers,
    SceneEntityCfg,
)
from embodichain.lab.sim.model.drives import match_names
from embodichain.utils.errors import collected, nearest


class EntityUid(str):
    """The name of an entity that must be of a kind."""

    kind: str

    @classmethod
    def of(cls, entity: SceneEntityCfg) -> EntityUid:
        """Return an entity's name with its kind."""
        name = cls(entity.uid)
        name.kind = entity.kind
        return name


@dataclass(frozen=True)
class SceneNames:
    """The names that terms may use. A set is None if it is only known once the environment is built.

    Attributes:
        uids: uids of all entities.
        kinds: uids of each kind of entity (``SceneEntityCfg.kind``).
        parts: the control parts of each robot, by its uid.
        entries: the base observation's, by slash-separated name.
        cameras: the uids of cameras.
        contact_sensors: the uids of contact sensors.
        commands: the names in ``env.commands``.
        robot: the uid of the environment's robot.
        joints: joints of robots and articulations with known models, in their order, by uid.
        links: their links, likewise.
        sensed: the links of contact sensors with known robots, in their order, by uid.
    """

    uids: frozenset[str] | None
    parts: Mapping[str, frozenset[str]] | None
    entries: frozenset[str] | None = None
    cameras: frozenset[str] | None = None
    contact_sensors: frozenset[str] | None = None
    commands: frozenset[str] | None = None
    kinds: Mapping[str, frozenset[str]] | None = None
    robot: str | None = None
    joints: Mapping[str, Sequence[str]] = field(default_factory=dict)
    links: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sensed: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, env: TermEnv) -> SceneNames:
        """Return the names of a built scene."""
        sim = env.sim
        jointed = sim.articulations | sim.robots
        return cls(
            frozenset(sim.entity_uids),
            {uid: frozenset(robot.control_parts) for uid, robot in sim.robots.items()},
            None,
            frozenset(sim.sensors),
            frozenset(sim.contact_sensors),
            frozenset(env.cfg.commands),
            sim.uids_by_kind(),
            env.robot.uid if sim.robots else None,
            {uid: articulation.joint_names for uid, articulation in jointed.items()},
            {uid: articulation.link_names for uid, articulation in jointed.items()},
            {uid: sensor.names for uid, sensor in sim.contact_sensors.items()},
        )


def name_problems(params: Mapping[str, Any], place: str, names: SceneNames) -> list[str]:
    """Return the problems of a term's converted parameters that name things missing in the scene, a line each."""
    return [*_unknown_entities(params, place, names), *_model_problems(params, place, names)]


def _unknown_entities(params: Mapping[str, Any], place: str, names: SceneNames) -> Iterator[str]:
    robot = params.get("robot_uid")
    for path, key, value in _mentions(params, place):
        if isinstance(value, CameraUid):
            if names.cameras is None:
                continue
            known, what, of = names.cameras | {ALL_SENSORS}, "camera", "scene"
        elif isinstance(value, ContactSensorUid):
            if names.contact_sensors is None:
                continue
            known, what, of = names.contact_sensors, "contact sensor", "scene"
        elif isinstance(value, CommandKey):
            if names.commands is None:
                continue
            known, what, of = names.commands, "command", "config's env.commands"
        elif key == "part_name" or key.endswith("_part_name"):
            if names.parts is None or (robot and robot not in names.parts):
                continue  # errors of 'robot_uid' are a problem of their own
            known = names.parts[robot] if robot else frozenset().union(*names.parts.values())
            what, of = "control part", f"robot '{robot or next(iter(names.parts), '')}'"
        elif key == "robot_uid" and names.parts is not None:
            known, what, of = frozenset(names.parts), "robot", "scene"
        elif isinstance(value, EntityUid) and names.kinds is not None:
            known, what, of = names.kinds[value.kind], value.kind, "scene"
        elif names.uids is not None:
            known, what, of = names.uids, "", "scene"
        else:
            continue
        if value not in known and (value != GROUND_UID or isinstance(value, EntityUid)):
            there = ", ".join(sorted(known)) or "none"
            yield f"{path}: no {what and what + ' '}'{value}' in the {of}.{nearest(value, known)} There are: {there}"


def _mentions(params: Mapping[str, Any], place: str) -> Iterator[tuple[str, str, str]]:
    """Yield path, parameter and value of each name of an entity."""
    for key, value in params.items():
        for i, item in enumerate(value if isinstance(value, (list, tuple)) else [value]):
            path = f"{place}.{key}[{i}]" if isinstance(value, (list, tuple)) else f"{place}.{key}"
            if isinstance(item, CameraEntityCfg):
                yield f"{path}.uid", key, CameraUid(item.uid)
            elif isinstance(item, SceneEntityCfg):
                yield f"{path}.uid", key, EntityUid.of(item) if item.kind else item.uid
            elif isinstance(item, dict):
                yield from ((f"{path}.{uid}", key, uid) for uid in item if isinstance(uid, CameraUid))
            elif isinstance(item, ContactSensorUid | CommandKey) or _is_name(key, item):
                yield path, key, item


def _is_name(key: str, value: Any) -> bool:
    """Return whether a parameter's value is the name of an entity or control part, by the parameter's own name."""
    is_named = key == "uids" or key.endswith(("_uid", "_uids", "_uid_list", "part_name"))
    return isinstance(value, str) and is_named


def _model_problems(params: Mapping[str, Any], place: str, names: SceneNames) -> list[str]:
    """Return the problems of joints and links that are not there, and of a wrong number of values for them."""
    problems: list[str] = []
    for key, value in params.items():
        path = f"{place}.{key}"
        if isinstance(value, SceneEntityCfg):
            with collected(problems):
                _check_parts_of(value, path, names)
        elif isinstance(value, dict) and (joints := names.joints.get(names.robot or "")):
            with collected(problems):
                match_names([name for name in value if isinstance(name, JointPattern)], joints, path)
        elif isinstance(value, LinkNumbers):
            sensor = next((uid for uid in params.values() if isinstance(uid, ContactSensorUid)), "")
            if sensor in names.sensed:
                problems += _count_problem(path, value, names.sensed[sensor], f"links of sensor '{sensor}'")
    return problems if problems else _joint_number_problems(params, place, names)


def _check_parts_of(entity: SceneEntityCfg, path: str, names: SceneNames) -> None:
    """Raise a ConfigError if a parameter names a joint or a link that its entity does not have."""
    for kind, given, there in (("joint", entity.joint_names, names.joints), ("link", entity.link_names, names.links)):
        if given is not None and entity.uid in there:
            match_names(_patterns(given), there[entity.uid], f"{path}.{kind}_names", kind)


def _joint_number_problems(params: Mapping[str, Any], place: str, names: SceneNames) -> list[str]:
    """Return the problems of indices of joints and of ranges with numbers for each joint."""
    entity = next((value for value in params.values() if isinstance(value, SceneEntityCfg)), None)
    joints = names.joints.get((params.get("robot_uid") or names.robot or "") if entity is None else entity.uid)
    if joints is None:
        return []
    ids = {key: value for key, value in params.items() if isinstance(value, JointNumbers)}
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
        if isinstance(value, JointRanges) and len(value[0]) != 1
        for problem in _count_problem(f"{place}.{key}", value[0], joints, "joints")
    ]


def _patterns(given: list[str] | str) -> list[str]:
    return [given] if isinstance(given, str) else given


def _count_problem(path: str, values: Sequence[float], of: Sequence[str], what: str) -> list[str]:
    if len(values) == len(of):
        return []
    return [f"{path}: has {len(values)} values for {len(of)} {what}: {', '.join(of)}"]
