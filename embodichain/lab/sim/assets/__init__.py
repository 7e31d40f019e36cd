"""Robot models that come with the package: MJCF files of primitive shapes, and the names configs ask for."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).parent

# Names in configs (lower case) -> bundled file. The .urdf paths are those of configs written for the original system.
_ALIASES = {
    "ur10": "ur10.xml",
    "universalrobots/ur10/ur10.urdf": "ur10.xml",
    "dh_pgi_140_80": "dh_pgi_140_80.xml",
    "dh_pgi_140_80/dh_pgi_140_80.urdf": "dh_pgi_140_80.xml",
    "cart_pole": "cart_pole.xml",
    "cartpole/cart_pole.urdf": "cart_pole.xml",
}


def bundled_assets() -> list[str]:
    """The names of the bundled models, sorted; each is accepted by `asset_path`."""
    return sorted(path.stem for path in _ROOT.glob("*.xml"))


def asset_path(name: str) -> Path:
    """The file of a model: an existing file as it is, else a bundled one by name, file name or alias (in any case)."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    key = name.replace("\\", "/").lower()
    bundled = _ROOT / _ALIASES.get(key, _ALIASES.get(key.removesuffix(".xml"), ""))
    if bundled.is_file():
        return bundled
    raise FileNotFoundError(
        f"asset {name!r} is neither an existing file nor a bundled asset; bundled: {', '.join(bundled_assets())}"
    )
