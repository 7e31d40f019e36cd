"""The training config: its typed form, its reading, and overrides from the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import AfterValidator, Field, PositiveInt
from pydantic_core import PydanticCustomError

from embodichain.agents.rl.utils.schedule import parse_period
from embodichain.utils import ConfigError, configclass
from embodichain.utils.utility import load_config_file
from embodichain.utils.validation import from_dict

__all__ = [
    "AlgorithmBlockCfg",
    "EventsCfg",
    "TrainCfg",
    "TrainerCfg",
    "load_train_config",
    "parse_train_config",
    "read_train_config",
    "resolve_device",
]


def _check_period(period: int | str) -> int | str:
    try:
        parse_period(period)
    except ValueError as error:
        raise PydanticCustomError("period", "{problem}", {"problem": str(error)}) from None
    return period


Period = Annotated[int | str, AfterValidator(_check_period)]


@configclass
class EventsCfg:
    """Events beside those of the environment's own config."""

    train: dict[str, dict[str, Any]] = field(default_factory=dict)
    """In the training environment, by name."""
    eval: dict[str, dict[str, Any]] = field(default_factory=dict)
    """In the evaluation environment, by name."""


@configclass
class TrainerCfg:
    """The ``trainer`` block."""

    gym_config: str
    """Path of the environment's config, relative to the working directory, else to this config's folder."""
    exp_name: Annotated[str, Field(min_length=1, pattern=r"^[\w.\-]+$")] = "generic_exp"
    """Names the output folder."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Of torch, numpy and the environments."""
    device: str = "auto"
    """Of the learner: ``"cpu"``, ``"cuda:0"``, or ``"auto"``: cuda when there is one."""
    headless: bool = True
    """No window."""
    enable_rt: bool = False
    """Ray-traced rendering of recorded cameras."""
    gpu_id: int = 0
    """Kept for compatibility; ``device`` decides."""
    num_envs: PositiveInt | None = None
    """Overrides the environment's config."""
    iterations: PositiveInt = 250
    """Total steps = iterations x buffer_size x num_envs."""
    buffer_size: PositiveInt = 2048
    """Steps of each environment in one rollout."""
    enable_eval: bool = False
    """Evaluate in a separate environment."""
    num_eval_envs: PositiveInt = 4
    """Environments of the evaluation."""
    num_eval_episodes: PositiveInt = 5
    """Episodes of one evaluation: the same ones each time."""
    eval_freq: Period = 10000
    """Environment steps between evaluations, or ``"100 it"`` for iterations. The last iteration always evaluates."""
    save_freq: Period = 50000
    """The same for checkpoints. The last iteration always saves."""
    use_wandb: bool = False
    """Log to Weights & Biases too."""
    wandb_project_name: str = "embodichain"
    """Its project."""
    events: EventsCfg = field(default_factory=EventsCfg)
    """Events beside those of the environment's own config."""
    distributed: Literal[False] = False
    """Several processes; not available yet."""
    model_type: Literal["standard"] = "standard"
    """Kind of policy; ``"vla"`` is not available yet."""
    import_modules: list[str] = []
    """Modules to import first, so that their environments, policies and algorithms have names."""


@configclass
class AlgorithmBlockCfg:
    """The ``algorithm`` block."""

    name: str
    """A registered name."""
    cfg: dict[str, Any] = field(default_factory=dict)
    """Its settings."""


@configclass
class TrainCfg:
    """A whole training config."""

    trainer: TrainerCfg
    policy: dict[str, Any]
    """Has ``name``; the rest is the policy's own."""
    algorithm: AlgorithmBlockCfg


def load_train_config(path: str | Path, overrides: Sequence[str] = ()) -> TrainCfg:
    """Read a training config.

    Args:
        path: JSON or YAML file.
        overrides: ``"trainer.num_envs=256"``: dotted paths and values, as JSON where they are JSON, else as text.

    Raises:
        ConfigError: with every error found, a line each.
    """
    return parse_train_config(read_train_config(path, overrides))


def read_train_config(path: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Read a training config's plain data; arguments as :func:`load_train_config`.

    Raises:
        ConfigError: the file cannot be read, or an override is malformed.
    """
    data = load_config_file(path)
    for override in overrides:
        _apply_override(data, override)
    return data


def parse_train_config(data: dict[str, Any]) -> TrainCfg:
    """Turn a training config's plain data into its typed form.

    Raises:
        ConfigError: with every error found, a line each.
    """
    return from_dict(TrainCfg, data, "")


def resolve_device(name: str) -> torch.device:
    """Return the device that a config names.

    Raises:
        ConfigError: there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    match = re.fullmatch(r"cpu|cuda(?::(\d+))?", name)
    if match is None:
        raise ConfigError(f"trainer.device: must be 'auto', 'cpu' or 'cuda:<number>', got '{name}'")
    if name == "cpu":
        return torch.device("cpu")
    index, count = int(match[1] or 0), torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        there = f"there are {count} (cuda:0 to cuda:{count - 1})" if count else "CUDA is not available here"
        raise ConfigError(f"trainer.device: '{name}' cannot be used: {there}")
    return torch.device("cuda", index)


def _apply_override(data: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = path.split(".")
    if not equals or not all(keys):
        raise ConfigError(f"override '{override}': must be of the form trainer.num_envs=256")
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    node = data
    for key in keys[:-1]:
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            raise ConfigError(f"override '{override}': '{key}' is not an object in the config")
    node[keys[-1]] = value
