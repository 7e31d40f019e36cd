"""Bundles: the data of a failed update or a divergence, in one file that can be examined elsewhere.

A bundle is a file of the same form as a checkpoint, and as safe to load. ``kind`` says what it is about: ``"update"``
(everything needed to repeat an update) or ``"divergence"`` (what environments did before their physics became invalid).
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from embodichain import __version__
from embodichain.agents.rl.checkpoint.file import DamagedCheckpointError, load_checkpoint, save_checkpoint
from embodichain.utils import ConfigError
from embodichain.utils.state import freeze, thaw


def save_bundle(folder: Path, kind: str, step: int, content: Mapping[str, Any]) -> Path:
    """Write plain data (see ``embodichain.utils.state``) to ``<folder>/<kind>_step_<step>.pt``; create the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind}_step_{step}.pt"
    versions = {
        "embodichain": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    facts = {"kind": kind, "global_step": step, "versions": versions}
    save_checkpoint(path, {**facts, **freeze(dict(content))})
    return path


def load_bundle(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a bundle; a ConfigError if it is missing, damaged, or no bundle."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such bundle")
    try:
        content = load_checkpoint(path, device)
    except DamagedCheckpointError as error:
        raise ConfigError(f"{path}: damaged, cannot be read as a bundle") from error
    if "kind" not in content:
        raise ConfigError(f"{path}: a checkpoint, not a bundle; bundles are in the run's folder 'bundles'")
    return dict(thaw(content))


def space_to_data(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return a Box, or a Dict of them, as plain data."""
    if isinstance(space, spaces.Dict):
        return {"entries": {name: space_to_data(inner) for name, inner in space.spaces.items()}}
    assert isinstance(space, spaces.Box)  # environments make nothing else
    return {"low": space.low, "high": space.high}


def spaces_to_data(env: object) -> dict[str, Any]:
    """Return the spaces of an environment that a policy is built for, as plain data by kind."""
    names = {
        "flat": "flattened_observation_space",
        "action": "single_action_space",
        "observation": "single_observation_space",
    }
    return {
        name: space_to_data(getattr(env, attribute)) for name, attribute in names.items() if hasattr(env, attribute)
    }


def space_from_data(data: Mapping[str, Any]) -> spaces.Space[Any]:
    """Return what :func:`space_to_data` was given."""
    if "entries" in data:
        return spaces.Dict({name: space_from_data(inner) for name, inner in data["entries"].items()})
    low, high = data["low"], data["high"]
    return spaces.Box(low, high, dtype=low.dtype.type)
