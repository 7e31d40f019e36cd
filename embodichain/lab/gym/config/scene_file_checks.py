"""Checks of a config whose scene is one file: the file describes all of it."""

from __future__ import annotations

from collections.abc import Collection

from embodichain.lab.gym.envs.config_data import SCENE_KEYS
from embodichain.lab.gym.envs.env_cfg import EmbodiedEnvCfg
from embodichain.lab.gym.envs.scene_env import SceneEnv
from embodichain.lab.sim.model.scene import scene_path
from embodichain.lab.sim.sensors.cfg import CameraCfg
from embodichain.utils.errors import collected

_BESIDE = ("scene", "sensor")
_ROBOTS = ("control_parts", "active_joint_ids", "symmetry")  # settings about the config's robot
_FILES = ("physics_dt", "gravity", "solver")  # settings of sim_cfg that the file has


def scene_file_problems(cfg: EmbodiedEnvCfg, env_class: type | None, wrong: Collection[str]) -> list[str]:
    """Return the problems of ``scene`` and of what may not stand beside it, a line each.

    Args:
        env_class: of the environment; None where it is not known.
        wrong: paths of what is left out of the config, since its type is wrong.
    """
    is_scene_env = env_class is not None and issubclass(env_class, SceneEnv)
    if cfg.scene is None:
        missing = is_scene_env and "scene" not in wrong
        return ["scene: required, but missing: the MJCF file of the whole scene"] if missing else []
    if env_class is not None and not is_scene_env:
        return [f"scene: only for tasks whose scene is a file, such as 'SceneRL'; {env_class.__name__}'s is assembled"]
    problems: list[str] = []
    with collected(problems, "scene: "):
        scene_path(cfg.scene)
    default = EmbodiedEnvCfg()
    given = [key for key in SCENE_KEYS if key not in _BESIDE and getattr(cfg, key) != getattr(default, key)]
    given += [f"env.{key}" for key in _ROBOTS if getattr(cfg, key) != getattr(default, key)]
    given += [f"env.sim_cfg.{key}" for key in _FILES if getattr(cfg.sim_cfg, key) != getattr(default.sim_cfg, key)]
    given += [f"sensor[{i}]" for i, sensor in enumerate(cfg.sensor) if not isinstance(sensor, CameraCfg)]
    return problems + [f"{key}: not beside 'scene', whose file describes everything but cameras" for key in given]
