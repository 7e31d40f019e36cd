"""Sources of a training config: a file, or Python code."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embodichain.agents.rl.config.named import ShippedConfig, find_config, names_config
from embodichain.agents.rl.config.trainer_cfg import TrainCfg
from embodichain.lab.gym.env_sources import find_source
from embodichain.lab.gym.registry import find_env_spec
from embodichain.utils import ConfigError, placed, to_dict
from embodichain.utils.utility import as_json, check_plain, load_config_file

TrainSource = str | Path | Mapping[str, Any] | TrainCfg
"""A training config: the path of its file or folder, or a shipped one's name; such a file's content; or typed."""
OWN_CONFIG = "no shipped config: name it in the trainer.gym_config of your own"
"""Advice for a task that no shipped config trains."""


def find_train_config(target: str | Path) -> Path:
    """Return the training config that a user names, as ``find_config``.

    Raises:
        ConfigError: there is none; for a task without a shipped config, with the command that trains it.
    """
    name = str(target)
    if not Path(name).exists() and not names_config(name):
        if find_source(name) is not None:
            raise ConfigError(
                f"'{name}': no shipped config trains this environment: write it into the trainer.gym_config.id of a "
                "training config (docs/gymnasium.md)"
            )
        if find_env_spec(name) is not None:
            raise ConfigError(f"'{name}': a task with {OWN_CONFIG}")
    return find_config(target)


def train_command(configs: Sequence[ShippedConfig]) -> str | None:
    """Return the command that trains a task, of which there are these shipped configs; None: there are none."""
    if not configs:
        return None
    cloning = f"embodichain bc {configs[0].name} && " if configs[0].starts_from_clone else ""
    return f"{cloning}embodichain train {configs[0].name}"


def read_source(source: TrainSource) -> tuple[dict[str, Any], str, Path]:
    """Return a training config's plain data, its name in messages, and the folder that its paths may be relative to.

    Raises:
        ConfigError: the file cannot be read, the source is none, or Python's objects hold values that no file can.
    """
    if isinstance(source, (str, Path)):
        path = find_train_config(source)
        return load_config_file(path), str(path), path.parent
    if not isinstance(source, Mapping | TrainCfg):
        raise ConfigError(
            f"the config: must be a file's path or its content, a dictionary or a TrainCfg, got {source!r}"
        )
    data = to_dict(source) if isinstance(source, TrainCfg) else dict(source)
    plain = as_json(data, name := "the config")
    with placed(f"{name}: "):
        check_plain(plain)
    return plain, name, Path()
