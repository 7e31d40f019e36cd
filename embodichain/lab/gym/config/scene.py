"""A config's scene, put together before the environment is built: its mistakes, and the names that terms may use."""

import dataclasses
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg, SceneEnv
from embodichain.lab.gym.envs.env_cfg import SCENE_KEYS
from embodichain.lab.gym.envs.managers.checks import SceneNames, uids_by_kind
from embodichain.lab.sim.cfg import CameraCfg, StereoCameraCfg
from embodichain.lab.sim.model.model_files import MENAGERIE
from embodichain.lab.sim.model.scene import SceneBuilder, scene_path
from embodichain.utils import MISSING, ConfigError, collected, placed, raise_problems, replace

_SCENE_HOOKS = ("_setup_robot", "_prepare_scene", "_setup_sensors")
_OBSERVATION_HOOKS = ("_base_obs", "_extend_obs")
_FILES = ("fpath", "urdf_path", "folder_path")
_ROBOTS = ("control_parts", "active_joint_ids", "symmetry")  # settings about the config's robot
_SETTINGS = ("physics_dt", "gravity", "solver")  # settings of sim_cfg that a scene's file has


def read_scene(
    cfg: EmbodiedEnvCfg, env_class: type | None, folder: Path, wrong: Collection[str], problems: list[str]
) -> SceneNames:
    """Put a config's scene together, without compiling it, and return the names that its terms may use.

    Entities whose types are wrong are left out, and models of the Menagerie, which would be downloaded.

    Args:
        cfg: typed; paths of model files that lead nowhere from the working directory now lead from ``folder``.
        env_class: class of the environment; None: not known, and then nothing is.
        wrong: paths of entities left out of the config, since their type is wrong.
        problems: list of mistakes; mistakes in the scene are added.
    """
    for entity in (entity for _, entity in _entities(cfg)):
        for owner, name in _model_files(entity):
            setattr(owner, name, _beside(getattr(owner, name), folder))
    cfg.scene = _beside(cfg.scene, folder)
    with collected(problems):
        _check_scene_file(cfg, env_class, wrong)
    own = env_class if env_class is not None and issubclass(env_class, EmbodiedEnv) else None
    is_robots = own is not None and own._setup_robot is EmbodiedEnv._setup_robot
    if cfg.robot is None and is_robots and "robot" not in wrong:
        problems.append("robot: required, but missing")
    builder, is_whole = SceneBuilder(cfg.sim_cfg), not {*SCENE_KEYS, "light.direct"} & set(wrong)
    for place, entity in _entities(cfg) if cfg.scene is None else ():
        if place == "robot":
            is_read = own is None or is_robots
        else:  # a sensor's robot is reported itself
            is_read = not place.startswith("sensor") or (is_whole and cfg.robot is not None)
        is_wrong = any(path == place or path.startswith((f"{place}.", f"{place}[")) for path in wrong)
        is_here = not any(str(getattr(*found)).startswith(MENAGERIE) for found in _model_files(entity))
        if is_read and is_here and not is_wrong:
            if place.startswith("background"):
                entity = replace(entity, body_type="static")
            with collected(problems):
                builder.add(entity, place)
        elif entity.uid is MISSING:
            is_whole = False
        else:
            builder.entities[entity.uid] = entity
    if own is None:
        return SceneNames()
    entries, added = _declared(own, "base_entries", _OBSERVATION_HOOKS), _declared(own, "added_uids", _SCENE_HOOKS)
    images = _images([sensor for sensor in cfg.sensor if isinstance(sensor, CameraCfg)])
    is_whole = is_whole and added is not None and cfg.robot is not None
    uids = uids_by_kind(builder.entities.values(), added or ()) if is_whole else {}
    if not any(path.startswith("env.commands") for path in wrong):
        uids["command"] = frozenset(cfg.commands)
    if is_whole:
        needed = own.needed_uids.items()
        problems += [f"{own.__name__} needs a {kind} '{uid}'" for uid, kind in needed if uid not in uids[kind]]
    return SceneNames(
        uids,
        {} if added is None else builder.contents.parts,
        None if entries is None else frozenset([*entries, *images]),
        cfg.robot.uid if cfg.robot is not None and is_robots else None,
        **builder.names(),
    )


def _entities(cfg: EmbodiedEnvCfg) -> Iterator[tuple[str, Any]]:
    """Yield path and config of each entity of a scene, in the order in which the environment adds them."""
    if cfg.robot is not None:
        yield "robot", cfg.robot
    for key in ("background", "rigid_object", "articulation", "rigid_object_group"):
        yield from ((f"{key}[{i}]", entity) for i, entity in enumerate(getattr(cfg, key)))
    yield from ((f"light.direct[{i}]", light) for i, light in enumerate(cfg.light.direct))
    yield from ((f"sensor[{i}]", sensor) for i, sensor in enumerate(cfg.sensor))


def _model_files(cfg: Any) -> Iterator[tuple[Any, str]]:
    """Yield the configs with the path of a model file, in a config or itself, each with the field's name."""
    for field in dataclasses.fields(cfg):
        value = getattr(cfg, field.name)
        if field.name in _FILES:
            yield cfg, field.name
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]:
            if dataclasses.is_dataclass(inner):
                yield from _model_files(inner)


def _beside(name: Any, folder: Path) -> Any:
    """Return a path, in the folder if something is there and nothing in the working directory."""
    if not isinstance(name, str) or not name or os.path.exists(name) or not os.path.exists(folder / name):
        return name
    return str(folder / name)


def _check_scene_file(cfg: EmbodiedEnvCfg, env_class: type | None, wrong: Collection[str]) -> None:
    """Raise a ConfigError for a missing scene file, and for keys that it excludes."""
    is_scene_env = env_class is not None and issubclass(env_class, SceneEnv)
    if cfg.scene is None:
        if is_scene_env and "scene" not in wrong:
            raise ConfigError("scene: required, but missing: the MJCF file of the whole scene")
        return
    if env_class is not None and not is_scene_env:
        raise ConfigError(
            f"scene: only for tasks whose scene is a file, such as 'SceneRL'; {env_class.__name__}'s is assembled"
        )
    with placed("scene: "):
        scene_path(cfg.scene)
    default = EmbodiedEnvCfg()
    keys = [key for key in SCENE_KEYS if key not in ("scene", "sensor")]
    given = [key for key in keys if getattr(cfg, key) != getattr(default, key)]
    given += [f"env.{key}" for key in _ROBOTS if getattr(cfg, key) != getattr(default, key)]
    given += [f"env.sim_cfg.{key}" for key in _SETTINGS if getattr(cfg.sim_cfg, key) != getattr(default.sim_cfg, key)]
    given += [f"sensor[{i}]" for i, sensor in enumerate(cfg.sensor) if not isinstance(sensor, CameraCfg)]
    raise_problems(f"{key}: not with 'scene', whose file describes everything but cameras" for key in given)


def _declared(env_class: type[EmbodiedEnv], name: str, hooks: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names that a class declares, or None where a subclass overrides a hook without declaring them."""
    for cls in env_class.__mro__:
        if name in vars(cls):
            return getattr(env_class, name)
        if any(hook in vars(cls) for hook in hooks):
            return None
    return None


def _images(cameras: Sequence[CameraCfg]) -> Iterator[str]:
    """Yield the observation's entries of a config's cameras."""
    for camera in cameras:
        kinds = camera.kinds
        if isinstance(camera, StereoCameraCfg):
            kinds += [f"{kind}_right" for kind in kinds] + ["disparity"] * camera.enable_disparity
        yield from (f"sensor/{camera.uid}/{kind}" for kind in kinds)
