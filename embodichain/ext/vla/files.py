"""Reading of a LeRobot folder's files: errors are one line."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from embodichain.utils import ConfigError, install_extra, placed
from embodichain.utils.utility import load_config_file


def is_inside(folder: Path, path: Path) -> bool:
    """Return whether a path, links followed, leads into a folder, or into the hub's copy of its repository."""
    root = folder.parent.parent if folder.parent.name == "snapshots" else folder  # there the hub's files are links
    return path.resolve().is_relative_to(root.resolve())


def find_file(folder: Path, name: str, place: str) -> Path:
    """Return the path of a file next to others."""
    path = folder / name
    if ".." in Path(name).parts or not is_inside(folder, path):
        raise ConfigError(f"{place}: {folder}: '{name}' must be the name of a file in this folder")
    if not path.exists():
        raise ConfigError(f"{place}: {path}: is missing; it belongs to a policy in LeRobot's format")
    return path


def read_object(path: Path, place: str) -> dict[str, Any]:
    """Return a file's JSON object."""
    with placed(f"{place}: "):
        return load_config_file(path)


def download(repo: str, revision: str | None, patterns: Sequence[str], place: str) -> Path:
    """Return the folder with the files of a repository that match; only missing files are downloaded.

    Args:
        revision: a commit, tag or branch; None: the main branch.
        place: place in the config, for messages.
    """
    name = repo if revision is None else f"{repo}@{revision}"
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ConfigError(
            f"{place}: '{name}' is no folder here, and to download it needs huggingface_hub: {install_extra('vla')}"
        )
    import huggingface_hub  # noqa: PLC0415 (optional extra)

    return Path(huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=list(patterns)))


def load_weights(
    model: nn.Module, weights: Mapping[str, torch.Tensor], source: str, initial: Sequence[str] = ()
) -> None:
    """Load a state dict.

    Args:
        source: origin of the weights, for messages.
        initial: beginnings of the names that the state dict may lack; they stay as they are.
    """
    missing, unknown = model.load_state_dict(weights, strict=False)
    problems = [f"no '{name}'" for name in missing if not name.startswith(tuple(initial))]
    problems += [f"'{name}' is not the model's" for name in unknown]
    if problems:
        raise ConfigError(f"{source}: weights do not fit the model: {'; '.join(problems)}")
