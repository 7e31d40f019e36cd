"""The shipped tasks' own configs, for building an environment by its name alone."""

from __future__ import annotations

from pathlib import Path

from embodichain.lab.gym.config.env_config import ConfigFile

CONFIG_FOLDER = Path(__file__).parent / "configs"
"""Files of the package; copies for users are in ``configs/``."""


def default_cfg(name: str) -> ConfigFile:
    """Return the packaged environment config of this name; it is read when called."""
    return ConfigFile(CONFIG_FOLDER / f"{name}.json")
