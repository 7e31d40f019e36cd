"""The left-right mirror image of a robot: which joints and links are each other's, with which sign.

The mirror is the base's x-z plane: x points forward, y to the left, z up. A mirrored vector has the opposite y; a
mirrored pseudovector, such as an axis of rotation, has the opposite x and z.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import mujoco
import numpy as np

from embodichain.lab.sim.math import matrix_from_quat
from embodichain.lab.sim.objects.articulation import Articulation
from embodichain.utils import ConfigError

_SIDES = {"left": "right", "fl": "fr", "rl": "rr", "hl": "hr", "bl": "br", "lf": "rf", "lh": "rh", "l": "r"}
_OTHER = _SIDES | {right: left for left, right in _SIDES.items()}
_TOKEN = re.compile(r"left|right|(?<![a-z0-9])(?:[frhb][lr]|[lr][fh]|[lr])(?![a-z0-9])", re.IGNORECASE)
_ALIGNED = 0.999  # cosine of 2.6 degrees: of axes that are each other's mirror images
_NEAR = 0.01  # m: of joints that are
_SAME_ZERO = 1e-3  # rad or m

_VECTOR, _PSEUDOVECTOR = np.array([1.0, -1.0, 1.0]), np.array([-1.0, 1.0, -1.0])


def mirrored_name(name: str) -> str:
    """Return a name with left and right exchanged: FL and FR, left and right, L and R between other characters."""
    return _TOKEN.sub(lambda match: _in_case_of(match[0], _OTHER[match[0].lower()]), name)


def partners(names: Sequence[str]) -> list[int]:
    """Return the index of each name's mirror image; a name whose mirror image is not among them is its own."""
    return [names.index(other) if (other := mirrored_name(name)) in names else i for i, name in enumerate(names)]


def mirror_joints(
    model: mujoco.MjModel, robot: Articulation, names: Sequence[str], place: str
) -> tuple[list[int], list[int]]:
    """Return how the positions, velocities and efforts of joints are mirrored: component i is signs[i] * x[other[i]].

    The signs follow from the axes in the model: joints whose axes are each other's mirror images have 1, those whose
    axes are opposite to it have -1.

    Args:
        model: the compiled scene.
        names: of some of the robot's joints.
        place: for messages.

    Returns:
        ``(other, signs)``, indices among ``names`` and 1 or -1.

    Raises:
        ConfigError: one line: two joints are no mirror images of each other.
    """
    joint_ids = [robot.model_joint_ids[robot.joint_names.index(name)] for name in names]
    axes, anchors = _in_base(model, robot, joint_ids)
    other = partners(names)
    signs = []
    for i, j in enumerate(other):
        own, its = joint_ids[i], joint_ids[j]
        pair = f"'{names[i]}'" + ("" if i == j else f" and '{names[j]}'")
        flip = _PSEUDOVECTOR if model.jnt_type[own] == mujoco.mjtJoint.mjJNT_HINGE else _VECTOR
        cosine = float(axes[i] @ (flip * axes[j]))
        if model.jnt_type[own] != model.jnt_type[its] or abs(cosine) < _ALIGNED:
            raise ConfigError(
                f"{place}: the axes of {pair} are no mirror images: {_text(axes[i])} and {_text(axes[j])} in the "
                "base's frame; give 'permutation' and 'signs' instead"
            )
        if np.abs(anchors[i] - _VECTOR * anchors[j]).max() > _NEAR:
            raise ConfigError(
                f"{place}: {pair} {'is not in the middle' if i == j else 'are no mirror images'}: at "
                f"{_text(anchors[i])}{'' if i == j else f' and {_text(anchors[j])}'} m in the base's frame; give "
                "'permutation' and 'signs' instead"
            )
        sign = 1 if cosine > 0 else -1
        zeros = [float(model.qpos0[model.jnt_qposadr[joint]]) for joint in (own, its)]
        if abs(zeros[0] - sign * zeros[1]) > _SAME_ZERO:
            raise ConfigError(
                f"{place}: the positions of {pair} in which the model is drawn are no mirror images: {zeros[0]:.6g} "
                f"and {zeros[1]:.6g}"
            )
        signs.append(sign)
    return other, signs


def _in_base(model: mujoco.MjModel, robot: Articulation, joint_ids: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return axes [J, 3] and anchors [J, 3], m, of joints in the base's frame, where the model is drawn."""
    data = mujoco.MjData(model)  # at qpos0
    mujoco.mj_kinematics(model, data)
    root = robot.base.bodies[0]
    first = int(model.body_jntadr[root])
    if first >= 0 and model.jnt_type[first] == mujoco.mjtJoint.mjJNT_FREE:
        pos, turn = data.xpos[root], data.xmat[root].reshape(3, 3)
    else:  # a base link without a joint may have become the world's
        initial = robot.base.initial.cpu()
        pos, turn = initial[:3].numpy(), matrix_from_quat(initial[3:]).numpy()
    return data.xaxis[joint_ids] @ turn, (data.xanchor[joint_ids] - pos) @ turn


def _in_case_of(like: str, word: str) -> str:
    """Return a word in the capitals of another one."""
    if like.isupper():
        return word.upper()
    return word.capitalize() if like[0].isupper() else word


def _text(vector: np.ndarray) -> str:
    return "(" + ", ".join(f"{0.0 if abs(x) < 5e-4 else x:.3f}".rstrip("0").rstrip(".") for x in vector) + ")"
