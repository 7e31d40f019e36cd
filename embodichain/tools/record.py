"""``--record`` of ``eval`` and ``play``: the episodes as a LeRobot dataset."""

from __future__ import annotations

from pathlib import Path

from embodichain.agents.rl.task_env import TaskEnv, with_scene
from embodichain.lab.gym.env_sources import TaskCfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import datasets
from embodichain.lab.gym.envs.managers.cfg import DatasetCfg
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from embodichain.utils.errors import reason_of

OPTION = "--record"


def check_is_free(folder: Path) -> None:
    """Raise a ConfigError unless the folder can be created; its parent is."""
    if folder.exists():
        raise ConfigError(f"{OPTION} {folder}: is there already: name another folder, or remove it")
    try:
        folder.mkdir(parents=True)
        folder.rmdir()
    except OSError as error:
        raise ConfigError(f"{OPTION} {folder}: cannot be created: {reason_of(error)}") from error


def recorded(cfg: TaskCfg, folder: Path | None) -> TaskCfg:
    """Return an environment's config with a recorder of its episodes; the same without a folder.

    The dataset has ``observation.environment_state``. See :func:`write_into`.

    Raises:
        ConfigError: the environment belongs to another library.
    """
    if folder is None:
        return cfg
    params = {"save_path": folder.name, "environment_state": True}
    return replace(with_scene(cfg, OPTION), dataset={"episodes": DatasetCfg(datasets.LeRobotRecorder, params)})


def write_into(env: TaskEnv, folder: Path | None) -> None:
    """Let an environment that is built from a config of :func:`recorded` write into the folder."""
    if folder is not None and isinstance(env, EmbodiedEnv):
        env.write_into(folder.parent)
