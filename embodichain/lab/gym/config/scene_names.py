"""The names that a scene will have, read from its typed config before anything is built."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from embodichain.lab.gym.config.scene_checks import component_kinds, things_in_config
from embodichain.lab.gym.envs.config_data import SCENE_KEYS
from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.checks import SceneNames
from embodichain.lab.sim.cfg import RobotCfg
from embodichain.lab.sim.sensors.cfg import CameraCfg, StereoCameraCfg
from embodichain.utils.configclass import MISSING

__all__ = ["has_config_robot", "names_in_config"]

_SCENE_HOOKS = ("_setup_robot", "_prepare_scene", "_setup_sensors")
_OBSERVATION_HOOKS = ("_base_obs", "_extend_obs")


def names_in_config(cfg: EmbodiedEnvCfg, env_class: type | None, wrong: Collection[str] = ()) -> SceneNames:
    """Return what the terms of an environment may name, as far as its config tells.

    Args:
        env_class: of the environment; None where it is not known.
        wrong: paths of what is left out of the config, since its type is wrong.
    """
    if env_class is None or not issubclass(env_class, EmbodiedEnv):
        return SceneNames(None, None, None)
    declared = _declared(env_class, "base_entries", _OBSERVATION_HOOKS)
    entries = None if declared is None else frozenset([*declared, *_images(cfg.sensor)])
    added = _declared(env_class, "added_uids", _SCENE_HOOKS)
    uids = {thing.uid for _, thing in things_in_config(cfg)}
    # The members of a group that are named by files are looked at when the scene is built.
    is_open = any(group.folder_path is not None for group in cfg.rigid_object_group)
    is_whole = MISSING not in uids and not {*SCENE_KEYS, "light.direct"} & set(wrong)
    if added is None or cfg.robot is None or is_open or not is_whole:
        return SceneNames(None, None, entries)
    # What a class adds may be cameras as well.
    cameras = frozenset([*added, *(sensor.uid for sensor in cfg.sensor)])
    return SceneNames(frozenset([*uids, *added]), _parts(cfg.robot, wrong), entries, cameras)


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
