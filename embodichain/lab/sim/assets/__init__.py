"""Models bundled with the package, of primitive shapes, and their names in configs."""

from collections.abc import Sequence
from pathlib import Path

import mujoco

from embodichain.utils import nearest

UR_TYPES = ("ur3", "ur5", "ur10", "ur3e", "ur5e", "ur10e")
"""The arms of Universal Robots."""
LINK_ALIASES = {"ee_link": "tool0"}
"""Name of the flange in other files -> in ours."""

_UR_JOINTS = (
    *("shoulder_pan_joint", "shoulder_lift_joint", "elbow_joint"),
    *("wrist_1_joint", "wrist_2_joint", "wrist_3_joint"),
)
_ROOT = Path(__file__).parent

# Names in configs (lower case) -> asset. The paths match configs written for the original system.
_ALIASES = {
    **{f"universalrobots/{name}/{name}.urdf": name for name in UR_TYPES},
    "dh_pgi_140_80/dh_pgi_140_80.urdf": "dh_pgi_140_80",
    "cartpole/cart_pole.urdf": "cart_pole",
    "franka/panda/panda.urdf": "panda",
}


def bundled_assets() -> list[str]:
    """The names of the bundled models, sorted."""
    return sorted(path.stem for path in _ROOT.glob("*.xml"))


def asset_name(name: str) -> str:
    """Return the bundled model of a name, file name or alias, which ignores case; FileNotFoundError lists the known."""
    key = name.replace("\\", "/").lower()
    key = _ALIASES.get(key, key.removesuffix(".xml"))
    if key in bundled_assets():
        return key
    raise FileNotFoundError(
        f"asset {name!r} is neither an existing file nor a bundled asset.{nearest(key, bundled_assets())} "
        f"Bundled: {', '.join(bundled_assets())}"
    )


def asset_spec(name: str) -> mujoco.MjSpec:
    """Return the editable spec of a bundled model; FileNotFoundError where there is none of that name."""
    return mujoco.MjSpec.from_file(str(_ROOT / f"{asset_name(name)}.xml"))


def joint_aliases(names: Sequence[str]) -> dict[str, str]:
    """Return other names of UR arms' joints: ``JOINT1`` to ``JOINT6`` from the base, after an arm's side as prefix."""
    aliases: dict[str, str] = {}
    for prefix in [name.removesuffix(_UR_JOINTS[0]) for name in names if name.endswith(_UR_JOINTS[0])]:
        arm = [prefix + joint for joint in _UR_JOINTS]
        if set(arm) <= set(names):
            aliases |= {joint: f"{prefix}JOINT{number}" for number, joint in enumerate(arm, start=1)}
    return aliases
