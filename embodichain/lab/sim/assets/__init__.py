"""Models that come with the package, of primitive shapes, and the names under which configs ask for them."""

from __future__ import annotations

from pathlib import Path

import mujoco

from embodichain.lab.sim.assets.ur import UR_TYPES, ur_xml
from embodichain.utils.errors import nearest

__all__ = ["UR_TYPES", "asset_name", "asset_spec", "bundled_assets"]

_ROOT = Path(__file__).parent

# Names in configs (lower case) -> asset. The paths are those of configs written for the original system.
_ALIASES = {
    **{f"universalrobots/{name}/{name}.urdf": name for name in UR_TYPES},
    "dh_pgi_140_80/dh_pgi_140_80.urdf": "dh_pgi_140_80",
    "cartpole/cart_pole.urdf": "cart_pole",
    "franka/panda/panda.urdf": "panda",
}


def bundled_assets() -> list[str]:
    """The names of the bundled models, sorted."""
    return sorted([path.stem for path in _ROOT.glob("*.xml")] + list(UR_TYPES))


def asset_name(name: str) -> str:
    """Return the bundled model that is meant by a name, a file name or an alias, in any case.

    Raises:
        FileNotFoundError: there is none; the message lists those there are.
    """
    key = name.replace("\\", "/").lower()
    key = _ALIASES.get(key, key.removesuffix(".xml"))
    if key in bundled_assets():
        return key
    raise FileNotFoundError(
        f"asset {name!r} is neither an existing file nor a bundled asset.{nearest(key, bundled_assets())} "
        f"Bundled: {', '.join(bundled_assets())}"
    )


def asset_spec(name: str) -> mujoco.MjSpec:
    """Return the spec of a bundled model, to be edited and compiled.

    Raises:
        FileNotFoundError: there is none of that name.
    """
    key = asset_name(name)
    if key in UR_TYPES:
        return mujoco.MjSpec.from_string(ur_xml(key))
    return mujoco.MjSpec.from_file(str(_ROOT / f"{key}.xml"))
