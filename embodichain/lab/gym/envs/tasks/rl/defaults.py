"""The shipped tasks' own configs, for building an environment by its name alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from embodichain.lab.gym.envs.embodied_env import EmbodiedEnvCfg
from embodichain.lab.gym.utils.gym_utils import config_to_cfg
from embodichain.utils.utility import load_json

__all__ = ["CONFIG_FOLDER", "default_cfg"]

CONFIG_FOLDER = Path(__file__).parent / "configs"
"""Part of the package, so that it is there however it was installed. The same files are in ``configs/``, for users to
copy."""


def default_cfg(name: str) -> Callable[[], EmbodiedEnvCfg]:
    """Return a function that reads the packaged environment config of this name."""
    return functools.partial(_read, CONFIG_FOLDER / f"{name}.json")


def _read(path: Path) -> EmbodiedEnvCfg:
    return config_to_cfg(load_json(path))
