"""Checks of a scene's entities before it is built."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from embodichain.lab.sim.assets import UR_TYPES, asset_name, bundled_assets
from embodichain.utils import ConfigError
from embodichain.utils.errors import unknown_name

MENAGERIE = "menagerie/"
"""Prefix of the names of the MuJoCo Menagerie's models."""

# Names that the model has already.
_RESERVED_UIDS = ("ground", "world")


def check_uid(uid: str, taken: Collection[str]) -> None:
    """Raise a ConfigError if a new uid is malformed, reserved or already taken."""
    if not uid or "/" in uid or not uid.isprintable() or uid in _RESERVED_UIDS:
        reserved = ", ".join(_RESERVED_UIDS)
        raise ConfigError(
            f"uid {uid!r} cannot be used: it must not be empty, have a '/' or a control character, or be one of "
            f"{reserved}"
        )
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


def check_asset(name: str) -> None:
    """Raise a ConfigError if a name is neither a file nor a bundled asset; Menagerie models are not downloaded."""
    if name.startswith(MENAGERIE) or Path(name).expanduser().is_file():
        return
    try:
        asset_name(name)
    except FileNotFoundError as error:
        raise ConfigError(str(error)) from error


def asset_of_robot_type(robot_type: str, ur_type: str) -> str:
    """Return the bundled asset of a ``robot_type``, which ignores case; ConfigError where there is none."""
    types = {"URRobot": ur_type, "FrankaPanda": "panda", "CartPole": "cart_pole"}
    types |= {name: name for name in bundled_assets()}
    asset = {name.lower(): asset for name, asset in types.items()}.get(robot_type.lower())
    if asset is None:
        raise ConfigError(unknown_name("robot_type", robot_type, types))
    if asset not in bundled_assets():
        raise ConfigError(unknown_name("ur_type", asset, UR_TYPES))
    return asset


def check_components(kinds: Collection[str]) -> None:
    """Raise a ConfigError if a robot has no parts, or a hand without its arm."""
    for kind in kinds:
        if kind.endswith("hand") and kind.replace("hand", "arm") not in kinds:
            arm = kind.replace("hand", "arm")
            raise ConfigError(f"a '{kind}' needs an arm: fpath, robot_type, or '{arm}' in urdf_cfg.components")
    if not kinds:
        raise ConfigError("needs an arm: fpath, robot_type, or an 'arm' in urdf_cfg.components")
