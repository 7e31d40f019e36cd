"""What can be wrong with a thing in the scene and be seen before the scene is built."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from embodichain.utils import ConfigError
from embodichain.utils.errors import unknown_name

__all__ = ["arm_of_robot_type", "check_plane", "check_uid", "mesh_path"]

# Names that the model has already.
_RESERVED_UIDS = ("ground", "world")

_ROBOT_TYPES = {"URRobot": "ur10"}


def check_uid(uid: str, taken: Collection[str]) -> None:
    """Check a new name in the scene.

    Raises:
        ConfigError: it is malformed, reserved, or among those that are taken.
    """
    if not uid or "/" in uid or uid in _RESERVED_UIDS:
        reserved = ", ".join(_RESERVED_UIDS)
        raise ConfigError(f"uid '{uid}' cannot be used: it must not be empty, have a '/', or be one of {reserved}")
    if uid in taken:
        raise ConfigError(f"uid '{uid}' is used twice; there are already: {', '.join(sorted(taken))}")


def check_plane(body_type: object) -> None:
    """Raise a ConfigError unless a plane's body type is ``static``."""
    if body_type != "static":
        raise ConfigError(f"a Plane must have body_type 'static', got '{body_type}'")


def mesh_path(fpath: str) -> Path:
    """Return a mesh's absolute path; a ConfigError where there is no such file."""
    path = Path(fpath).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(f"no such mesh file: {path}")
    return path


def arm_of_robot_type(robot_type: str) -> str:
    """Return the bundled arm of a ``robot_type``; a ConfigError where there is none."""
    if robot_type not in _ROBOT_TYPES:
        raise ConfigError(unknown_name("robot_type", robot_type, _ROBOT_TYPES))
    return _ROBOT_TYPES[robot_type]
