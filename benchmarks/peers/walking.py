"""How well trained legs follow a velocity, with one definition for every library; needs nothing but torch.

Shapes: N environments, one episode in each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

EPISODES = 200
EPISODE_SECONDS = 10.0
COMMANDS = {"lin_vel_x": (-0.6, 1.0), "lin_vel_y": (-0.4, 0.4), "ang_vel_z": (-0.8, 0.8)}
"""Ranges of the uniformly drawn commands, m/s, m/s and rad/s, as in UniLab's ``go2_joystick_flat``."""
GOAL = {"error_xy": 0.15, "error_yaw": 0.2, "falls": 0.03}
"""The quality to reach: m/s, rad/s, and a share of the episodes."""

MAX_TILT = math.radians(60.0)
MIN_HEIGHT = 0.15  # m, of the base of a quadruped that stands at 0.3


class Motion(NamedTuple):
    """Of the robots' bases after a control step.

    Attributes:
        velocity: [N, 3], forwards and to the left, m/s, and about the vertical, rad/s, in the base's frame.
        up: vertical part of the base's z axis, [N]; 1 while it is level.
        height: [N], m.
        ended: [N] bool: the environment has ended the episode, so that the values are of another one.
    """

    velocity: Tensor
    up: Tensor
    height: Tensor
    ended: Tensor


class Walker(Protocol):
    """N environments of one robot, and its trained policy, which acts without noise."""

    dt: float
    """Duration of a control step, s."""

    def reset(self) -> Tensor:
        """Begin all episodes, and return their commands [N, 3], which stay; see ``Motion.velocity``."""

    def step(self) -> Motion:
        """Make one control step."""


def motion_of(qpos: Tensor, qvel: Tensor, ended: Tensor) -> Motion:
    """Return the motion of bases with MuJoCo's free joint.

    Args:
        qpos: [N, 7 or more], position and quaternion wxyz in the world's frame.
        qvel: [N, 6 or more], linear velocity in the world's frame, angular velocity in the base's.
        ended: [N] bool.
    """
    w, x, y, z = qpos[:, 3:7].unbind(1)
    # The first two columns of the rotation matrix, and its last element.
    forward = torch.stack((1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)), dim=1)
    left = torch.stack((2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)), dim=1)
    up = 1 - 2 * (x * x + y * y)
    linear = qvel[:, :3]
    velocity = torch.stack(((forward * linear).sum(1), (left * linear).sum(1), qvel[:, 5]), dim=1)
    return Motion(velocity, up, qpos[:, 2], ended)


def measure(walker: Walker) -> dict[str, float]:
    """Walk for ``EPISODE_SECONDS`` with fixed commands.

    Returns:
        ``error_xy`` (m/s) and ``error_yaw`` (rad/s): means over all steps before a fall of the distance between
        velocity and command, the start from rest included; NaN if all fall in the first step. ``falls``: share of the
        episodes in which the base tilts by more than 60 degrees or sinks below 0.15 m, or that the environment ends.
    """
    command = walker.reset()
    walks = torch.ones(len(command), dtype=torch.bool)
    total, count = torch.zeros(2, dtype=torch.float64), 0
    for _ in range(round(EPISODE_SECONDS / walker.dt)):
        motion = walker.step()
        walks &= (motion.up > math.cos(MAX_TILT)) & (motion.height > MIN_HEIGHT) & ~motion.ended
        error = (motion.velocity - command)[walks].double()
        total += torch.stack((error[:, :2].norm(dim=1).sum(), error[:, 2].abs().sum()))
        count += len(error)
    xy, yaw = (total / count).tolist()
    return {"error_xy": xy, "error_yaw": yaw, "falls": 1.0 - walks.double().mean().item()}


def time_to_goal(points: Sequence[Mapping[str, float]]) -> float:
    """Return the ``seconds`` of the first of two points in a row that reach ``GOAL``; infinite without such points."""
    for point, following in itertools.pairwise(points):
        if all(max(point[name], following[name]) <= limit for name, limit in GOAL.items()):
            return point["seconds"]
    return math.inf
