"""The names that a scene will have, read from its config before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv
from embodichain.lab.gym.envs.managers.checks import SceneNames
from embodichain.lab.gym.utils.scene_checks import entities_in_config

__all__ = ["names_in_config"]

_SCENE_HOOKS = ("_setup_robot", "_prepare_scene", "_setup_sensors")


def names_in_config(data: Mapping[str, Any], env_class: type | None) -> SceneNames:
    """Return what the terms of an environment may name, as far as its config tells.

    Args:
        data: the config's content; parts that are malformed are passed over.
        env_class: of the environment; None where it is not known.
    """
    if env_class is None or not issubclass(env_class, EmbodiedEnv):
        return SceneNames(None, None, None)
    has_own_entries = any(
        getattr(env_class, hook) is not getattr(EmbodiedEnv, hook) for hook in ("_base_obs", "_extend_obs")
    )
    entries = None if has_own_entries else frozenset(env_class.base_entries)
    added = _added_uids(env_class)
    if added is None:
        return SceneNames(None, None, entries)
    uids = {uid for _, entity in entities_in_config(data) if isinstance(uid := entity.get("uid"), str)}
    return SceneNames(frozenset({*uids, *added}), _parts(data.get("robot")), entries)


def _added_uids(env_class: type[EmbodiedEnv]) -> tuple[str, ...] | None:
    """Return what a class declares to add, or None where a subclass adds things without saying which."""
    for cls in env_class.__mro__:
        if "added_uids" in vars(cls):
            return env_class.added_uids
        if any(hook in vars(cls) for hook in _SCENE_HOOKS):
            return None
    return None


def _parts(robot: Any) -> dict[str, frozenset[str]] | None:
    """Return the control parts of the config's robot, by its name."""
    if not (isinstance(robot, Mapping) and isinstance(robot.get("uid"), str)):
        return None
    parts = robot.get("control_parts")
    if isinstance(parts, Mapping):
        return {robot["uid"]: frozenset(parts)}
    # Without them the scene makes a part of each component.
    urdf = robot.get("urdf_cfg")
    components = urdf.get("components") if isinstance(urdf, Mapping) else None
    hands = [c for c in components or [] if isinstance(c, Mapping) and c.get("component_type") == "hand"]
    return {robot["uid"]: frozenset(("arm", "hand") if hands else ("arm",))}
