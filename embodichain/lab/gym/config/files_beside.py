"""Model files that an environment's config names by paths from its own folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_FILE_KEYS = ("fpath", "urdf_path", "folder_path")  # at any depth of the scene's blocks
_BLOCKS = ("robot", "articulation", "background", "rigid_object", "rigid_object_group")


def find_files_beside(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a config's data with the paths of model files that are in its folder, and not in the working directory.

    Args:
        data: of an environment's config, not checked yet; not changed.
        folder: of the config's file.
    """
    found = {key: _found_in(value, folder) if key in _BLOCKS else value for key, value in data.items()}
    return found | ({"scene": _beside(data["scene"], folder)} if "scene" in data else {})


def _found_in(node: Any, folder: Path) -> Any:
    if isinstance(node, list):
        return [_found_in(value, folder) for value in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _beside(value, folder) if key in _FILE_KEYS else _found_in(value, folder) for key, value in node.items()
    }


def _beside(name: Any, folder: Path) -> Any:
    """Return a path, in the config's folder if something is there and nothing in the working directory."""
    if not isinstance(name, str) or not name or os.path.exists(name) or not os.path.exists(folder / name):
        return name
    return str(folder / name)
