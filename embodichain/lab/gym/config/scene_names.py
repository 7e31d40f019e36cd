"""The names that a scene will have, read from its config before anything is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from embodichain.lab.gym.config.scene_checks import component_kinds, entities_in_config
from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv
from embodichain.lab.gym.envs.managers.checks import SceneNames

__all__ = ["has_config_robot", "names_in_config"]

_SCENE_HOOKS = ("_setup_robot", "_prepare_scene", "_setup_sensors")
_OBSERVATION_HOOKS = ("_base_obs", "_extend_obs")


def names_in_config(data: Mapping[str, Any], env_class: type | None) -> SceneNames:
    """Return what the terms of an environment may name, as far as its config tells.

    Args:
        data: the config's content; parts that are malformed are passed over.
        env_class: of the environment; None where it is not known.
    """
    if env_class is None or not issubclass(env_class, EmbodiedEnv):
        return SceneNames(None, None, None)
    declared = _declared(env_class, "base_entries", _OBSERVATION_HOOKS)
    entries = None if declared is None else frozenset([*declared, *_images(data.get("sensor"))])
    added = _declared(env_class, "added_uids", _SCENE_HOOKS)
    uids = [entity.get("uid") for _, entity in entities_in_config(data)]
    is_whole = isinstance(data.get("robot"), Mapping) and all(isinstance(uid, str) for uid in uids)
    if added is None or not is_whole or _has_folder_of_meshes(data.get("rigid_object_group")):
        return SceneNames(None, None, entries)
    # What a class adds may be cameras as well.
    sensors = data.get("sensor")
    listed = sensors if isinstance(sensors, list) else ()
    named = [sensor.get("uid") for sensor in listed if isinstance(sensor, Mapping)]
    cameras = [*added, *named]
    return SceneNames(
        frozenset(map(str, [*uids, *added])), _parts(data.get("robot")), entries, frozenset(map(str, cameras))
    )


def has_config_robot(env_class: type | None) -> bool:
    """Return whether an environment's robot is that of its config."""
    if env_class is None or not issubclass(env_class, EmbodiedEnv):
        return False
    return env_class._setup_robot is EmbodiedEnv._setup_robot


def _declared(env_class: type[EmbodiedEnv], name: str, hooks: Sequence[str]) -> tuple[str, ...] | None:
    """Return what a class declares to add, or None where a subclass overrides a hook without saying what it adds."""
    for cls in env_class.__mro__:
        if name in vars(cls):
            declared: tuple[str, ...] = getattr(env_class, name)
            return declared
        if any(hook in vars(cls) for hook in hooks):
            return None
    return None


def _images(sensors: Any) -> Iterator[str]:
    """Yield the observation's entries of a config's cameras."""
    for sensor in sensors if isinstance(sensors, list) else ():
        if isinstance(sensor, Mapping):
            kinds = [kind for kind in ("color", "depth", "mask") if sensor.get(f"enable_{kind}", kind == "color")]
            if sensor.get("sensor_type") == "StereoCamera":
                kinds += [f"{kind}_right" for kind in kinds] + ["disparity"] * bool(sensor.get("enable_disparity"))
            yield from (f"sensor/{sensor.get('uid')}/{kind}" for kind in kinds)


def _has_folder_of_meshes(groups: Any) -> bool:
    """Return whether a group's members are named by files, which are looked at when the scene is built."""
    return any(
        isinstance(group, Mapping) and group.get("folder_path") is not None
        for group in (groups if isinstance(groups, list) else ())
    )


def _parts(robot: Any) -> dict[str, frozenset[str]] | None:
    """Return the control parts of the config's robot, by its name."""
    if not (isinstance(robot, Mapping) and isinstance(robot.get("uid"), str)):
        return None
    parts = robot.get("control_parts")
    if parts is not None:
        return {robot["uid"]: frozenset(parts)} if isinstance(parts, Mapping) else None
    # Without them the scene makes a part of each component.
    kinds = component_kinds(robot)
    return None if kinds is None else {robot["uid"]: frozenset(kinds)}
