"""Reading of a LeRobot folder's files: errors are one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from embodichain.utils import ConfigError
from embodichain.utils.files import read_text


def is_inside(folder: Path, path: Path) -> bool:
    """Return whether a path, links followed, leads into a folder, or into the hub's copy of its repository."""
    root = folder.parent.parent if folder.parent.name == "snapshots" else folder  # there the hub's files are links
    return path.resolve().is_relative_to(root.resolve())


def find_file(folder: Path, name: str, place: str) -> Path:
    """Return the path of a file next to others.

    Raises:
        ConfigError: the file is missing, or its name or a link leads out of the folder.
    """
    path = folder / name
    if ".." in Path(name).parts or not is_inside(folder, path):
        raise ConfigError(f"{place}: {folder}: '{name}' must be the name of a file in this folder")
    if not path.exists():
        raise ConfigError(f"{place}: {path}: is missing; it belongs to a policy in LeRobot's format")
    return path


def read_object(path: Path, place: str) -> dict[str, Any]:
    """Return a file's JSON object.

    Raises:
        ConfigError: the file cannot be read, or is no object.
    """
    try:
        content = json.loads(read_text(path))
    except OSError as error:
        raise ConfigError(f"{place}: {path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: {path}: is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{place}: {path}: must be an object, got {type(content).__name__}")
    return content
