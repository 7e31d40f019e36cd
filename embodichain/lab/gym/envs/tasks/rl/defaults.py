"""The shipped tasks' own configs, for building an environment by its name alone."""

from __future__ import annotations

from embodichain.lab.gym.config.env_config import ConfigFile
from embodichain.utils.doors import TASK_CONFIGS


def default_cfg(name: str) -> ConfigFile:
    """Return the shipped environment config of a task's folder; it is read when called."""
    return ConfigFile(TASK_CONFIGS / name / "gym_config.json")
