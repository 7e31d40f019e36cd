"""A small quadruped for the tests of mirror images: a free trunk, and four legs of three joints each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LEGS = ("FL", "FR", "RL", "RR")
JOINTS = [f"{leg}_{name}" for leg in LEGS for name in ("hip", "thigh", "calf")]


def quadruped(folder: Path, name: str = "quadruped", changes: dict[str, str] | None = None) -> str:
    """Write the robot's model, and return its path.

    The hips turn about x on the left and about -x on the right, so that a mirrored hip keeps its value; the others
    turn about y. ``changes`` are replacements in the text.
    """
    text = f'<mujoco model="{name}"><compiler angle="radian"/>'
    text += '<default><joint armature="0.01"/></default><worldbody><body name="trunk"><freejoint/>'
    text += '<geom type="box" size="0.2 0.08 0.05" mass="4"/>'
    for leg in LEGS:
        x, y = (0.2 if leg[0] == "F" else -0.2), (0.08 if leg[1] == "L" else -0.08)
        axis = "1 0 0" if leg[1] == "L" else "-1 0 0"
        text += (
            f'<body name="{leg}_hip" pos="{x} {y} 0"><joint name="{leg}_hip" axis="{axis}" range="-1 1"/>'
            f'<geom type="sphere" size="0.03" mass="0.4" contype="0" conaffinity="0"/>'
            f'<body name="{leg}_thigh" pos="0 {y / 2} 0"><joint name="{leg}_thigh" axis="0 1 0" range="-1.5 3"/>'
            f'<geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" mass="0.5" contype="0" conaffinity="0"/>'
            f'<body name="{leg}_calf" pos="0 0 -0.2"><joint name="{leg}_calf" axis="0 1 0" range="-2.7 -0.5"/>'
            f'<geom type="capsule" fromto="0 0 0 0 0 -0.18" size="0.015" mass="0.2" contype="0" conaffinity="0"/>'
            f'<body name="{leg}_foot" pos="0 0 -0.2"><geom type="sphere" size="0.025" mass="0.05"/></body>'
            "</body></body></body>"
        )
    text += "</body></worldbody></mujoco>"
    for old, new in (changes or {}).items():
        assert old in text
        text = text.replace(old, new)
    path = folder / f"{name}.xml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def robot_data(path: str, **changes: Any) -> dict[str, Any]:
    """Return the config of the standing robot."""
    return {
        "uid": "dog",
        "fpath": path,
        "fix_base": False,
        "init_pos": [0.0, 0.0, 0.36],
        "init_qpos": [0.0, 0.8, -1.5] * 4,
        "drive_pros": {"stiffness": 30.0, "damping": 1.0, "max_effort": 20.0},
        **changes,
    }


SYMMETRY: dict[str, Any] = {
    "observations": {"robot/qpos": "joints", "robot/qvel": "joints", "robot/qf": "joints"},
    "actions": {"move": "joints"},
}
