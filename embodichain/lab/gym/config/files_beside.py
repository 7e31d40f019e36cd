"""Model files that an environment's config names by paths from its own folder."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from embodichain.lab.gym.envs.env_cfg import EmbodiedEnvCfg

_FILES = ("fpath", "urdf_path", "folder_path")  # at any depth of the scene's blocks
_BLOCKS = ("robot", "articulation", "background", "rigid_object", "rigid_object_group")


def find_files_beside(cfg: EmbodiedEnvCfg, folder: Path) -> None:
    """Let paths of model files that lead nowhere from the working directory lead from the config's folder.

    Args:
        cfg: typed, not checked yet; changed.
        folder: of the config's file.
    """
    for block in _BLOCKS:
        for entity in _configs_in(getattr(cfg, block)):
            _find_in(entity, folder)
    cfg.scene = _beside(cfg.scene, folder)


def _find_in(cfg: Any, folder: Path) -> None:
    """Do the same for the config of a part of the scene, and for those inside it."""
    for field in dataclasses.fields(cfg):
        value = getattr(cfg, field.name)
        if field.name in _FILES:
            setattr(cfg, field.name, _beside(value, folder))
        for inner in _configs_in(value):
            _find_in(inner, folder)


def _configs_in(value: Any) -> list[Any]:
    """Return the configs that are, or that are in, a field's value."""
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return [inner for inner in values if dataclasses.is_dataclass(inner)]


def _beside(name: Any, folder: Path) -> Any:
    """Return a path, in the folder if something is there and nothing in the working directory."""
    if not isinstance(name, str) or not name or os.path.exists(name) or not os.path.exists(folder / name):
        return name
    return str(folder / name)
