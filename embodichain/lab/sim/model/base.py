"""The place of an articulation in the scene, and whether its base moves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mujoco
import numpy as np
import torch

from embodichain.lab.sim.cfg import ArticulationCfg
from embodichain.lab.sim.kinematics import pos_quat
from embodichain.lab.sim.math import quat_from_euler
from embodichain.lab.sim.model.assembly import Assembly
from embodichain.utils import ConfigError


def place_base(scene: mujoco.MjSpec, built: Assembly, cfg: ArticulationCfg, place: str) -> None:
    """Put an articulation into the scene, fixed or free.

    A free base starts at ``init_pos``; where that is the origin, at its position in the file. ``init_rot`` turns it
    from its orientation in the file.

    Raises:
        ConfigError: a free base has several roots, or joints.
    """
    pos = np.array(cfg.init_pos)
    if cfg.fix_base:
        for joint in _free_joints(built.spec):
            built.spec.delete(joint)
    else:
        _free_root(built, place)
        pos = pos if pos.any() else built.start[:3]
    built.spec.option, built.spec.visual = scene.option, scene.visual  # a scene has one of each
    frame = scene.worldbody.add_frame(pos=pos, quat=quat_of_degrees(cfg.init_rot))
    inner = scene.worldbody.add_frame(**pos_quat(built.base_transform))
    inner.set_frame(frame)
    scene.attach(built.spec, prefix=f"{cfg.uid}/", frame=inner)


def quat_of_degrees(angles: Sequence[float]) -> np.ndarray:
    """Return the quaternion wxyz of angles about the fixed x, then y, then z axis, degrees."""
    radians = torch.tensor([math.radians(angle) for angle in angles], dtype=torch.float64)
    return quat_from_euler(radians).numpy()


def _free_root(built: Assembly, place: str) -> None:
    """Give the root a free joint, and the orientation of the file at the origin."""
    roots = list(built.spec.worldbody.bodies)
    if len(roots) != 1:
        raise ConfigError(f"{place}: fix_base false needs one root, got {', '.join(body.name for body in roots)}")
    root = roots[0]
    if own := [joint.name for joint in root.joints if joint.type != mujoco.mjtJoint.mjJNT_FREE]:
        raise ConfigError(
            f"{place}: fix_base false makes the base move freely, and its root '{root.name}' has joints that move it: "
            f"{', '.join(own)}. Leave fix_base out: they are joints of the robot"
        )
    if not _free_joints(built.spec):
        root.add_freejoint()
    root.pos, root.quat = np.zeros(3), built.start[3:]
    root.alt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT


def _free_joints(spec: mujoco.MjSpec) -> list[mujoco.MjsJoint]:
    return [joint for joint in spec.joints if joint.type == mujoco.mjtJoint.mjJNT_FREE]
