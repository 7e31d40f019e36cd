"""The shipped tasks' own configs, for building an environment by its name alone."""

from __future__ import annotations

from pathlib import Path

from embodichain.lab.gym.config.env_config import ConfigFile

CONFIG_FOLDER = Path(__file__).parent / "configs"
"""Part of the package, so that it is there however it was installed. The same files are in ``configs/``, for users to
copy."""


def default_cfg(name: str) -> ConfigFile:
    """Return the packaged environment config of this name, which is read when it is asked for."""
    return ConfigFile(CONFIG_FOLDER / f"{name}.json")
