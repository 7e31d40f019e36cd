"""The config of ``embodichain bc``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from embodichain.agents.rl.config.overrides import apply_overrides, name_overrides
from embodichain.agents.rl.config.trainer_cfg import MOST_EPISODES
from embodichain.utils import configclass
from embodichain.utils.configclass import MayChange, changeable
from embodichain.utils.errors import collected, placed, raise_problems
from embodichain.utils.plain_data import check_plain
from embodichain.utils.utility import load_config_file
from embodichain.utils.validation import from_dict


@configclass
class BCCfg:
    """How a policy is cloned from demonstrations."""

    train_config: str
    """The training config with environment and policy: a file, relative to the working directory, or else this config's
    folder, or the name of a shipped one (``push_cube``).
    The model is written where it looks for one: its ``policy.vla_config.model_path``, or ``policy.init_from``."""
    out: str | None = None
    """Folder of the model instead: below ``outputs``, or one that ``--allow-write`` allows. Null, where the training
    config names none: ``outputs/<exp_name>_bc``."""
    start_from: str | None = None
    """Weights to begin from, of a ``vla`` policy: a folder or hub repository of LeRobot's SmolVLA, an earlier clone, or
    what else ``policy.vla_config.model_path`` may name. Null: random ones."""
    dataset: str | None = None
    """Folder of a LeRobot dataset (v3.0) with the demonstrations; null: from the environment's scripted expert. Other
    policies than VLAs read its ``observation.environment_state``."""
    num_episodes: PositiveInt = 100
    """Number of demonstrations, from the first. Failed ones of the expert are left out."""
    num_envs: PositiveInt = 16
    """Environments in which the expert acts."""
    record: str | None = None
    """Folder for a LeRobot dataset of the expert's episodes, with the same rule as ``out``; null: none is written."""
    steps: MayChange[PositiveInt] = 2000
    """Gradient steps."""
    batch_size: PositiveInt = 64
    """Frames in one step."""
    learning_rate: PositiveFloat = 5e-4
    """Of AdamW at the first step; it falls to 0 linearly."""
    random_shift: NonNegativeInt = 0
    """Most pixels by which each image is moved at random along both axes, each time that it is shown."""
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    """Of AdamW."""
    max_grad_norm: PositiveFloat = 1.0
    """Norm to which the gradient is clipped."""
    save_freq: MayChange[PositiveInt] = 500
    """Gradient steps between two checkpoints, from which ``--resume`` continues."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Of the weights, the minibatches and the expert's episodes."""
    device: MayChange[str] = "auto"
    """Where the model is trained: ``"cpu"``, ``"cuda:0"``, or ``"auto"``: cuda when there is one."""
    num_eval_episodes: MayChange[Annotated[NonNegativeInt, Field(le=MOST_EPISODES)]] = 100
    """Episodes of the trained model's evaluation, the same ones as of a training with this seed; 0: no evaluation."""


def load_bc_config(path: str | Path, overrides: Sequence[str] = ()) -> BCCfg:
    """Read a config of behaviour cloning.

    Args:
        overrides: ``"steps=500"`` and the like.

    Raises:
        ConfigError: with every error found, a line each.
    """
    return _check({key: value for key, value in load_config_file(path).items() if key != "$schema"}, overrides)


def change_bc_config(saved: Mapping[str, Any], overrides: Sequence[str], place: str) -> BCCfg:
    """Return the config of a resumed cloning.

    Args:
        saved: fields of its ``BCCfg``.
        place: the checkpoint, for messages.

    Raises:
        ConfigError: an override changes a field that must stay, or ``saved`` is no valid config.
    """
    with placed(f"{place}: "):
        check_plain(saved)
        before = _check(dict(saved), ())
    now = _check(dict(saved), overrides)
    may_change = list(changeable(BCCfg))
    raise_problems(
        f"{name}: {value!r} in the run, {getattr(now, name)!r} now; a resumed cloning may change "
        f"{', '.join(may_change)}"
        for name, value in vars(before).items()
        if name not in may_change and getattr(now, name) != value
    )
    return now


def _check(data: dict[str, Any], overrides: Sequence[str]) -> BCCfg:
    problems: list[str] = []
    apply_overrides(data, overrides, problems)
    cfg: BCCfg | None = None
    with collected(problems):
        cfg = from_dict(BCCfg, data, "")
    raise_problems(name_overrides(problems, overrides))
    assert cfg is not None
    return cfg
