"""Observations of the reference, and of the robot's bodies: ``func(env, **params)``."""

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import TermEnv
from embodichain.lab.gym.envs.managers.measurements import measured
from embodichain.lab.gym.envs.managers.motion.commands import motion_of
from embodichain.lab.sim.math import matrix_from_quat, quat_apply, quat_inverse, quat_mul


@measured("reference's joint positions, rad, and velocities, rad/s, of some frames")
def motion_joints_ahead(env: TermEnv, frames: list[NonNegativeInt]) -> Tensor:
    """Return the reference's joint positions and velocities at some frames, [N, frames 2 J], rad and rad/s.

    Args:
        frames: control steps from now; 0: the present frame. Beyond the clip's end they are its last frame.
    """
    return torch.cat([motion_of(env).joints(ahead) for ahead in frames], dim=1)


@measured("reference's anchor in the robot's frame: position, m, and the first two columns of its rotation matrix")
def motion_anchor_pose(env: TermEnv) -> Tensor:
    """Return the reference's anchor in the robot's anchor: position, m, and two columns of its rotation, [N, 9]."""
    motion = motion_of(env)
    return _in_frame(motion.reference()[:, -1:], motion.robot()[:, -1:])


@measured(
    "robot's bodies in its anchor's frame: position, m, and the first two columns of the rotation matrix, of each"
)
def motion_bodies(env: TermEnv) -> Tensor:
    """Return the robot's bodies in its anchor: position, m, and two columns of the rotation of each, [N, 9 B]."""
    robot = motion_of(env).robot()
    return _in_frame(robot[:, :-1], robot[:, -1:])


@measured("present frame's number as a share of all frames")
def motion_phase(env: TermEnv) -> Tensor:
    """Return the present frame's number as a share of all frames, [N, 1] (DeepMimic's phase)."""
    motion = motion_of(env)
    return motion.frame[:, None] / len(motion.weights)


def _in_frame(states: Tensor, frame: Tensor) -> Tensor:
    """Return positions and rotations' first two columns [N, 9 B] of states [N, B, 13] in frames [N, 1, 13]."""
    inverse = quat_inverse(frame[..., 3:7])
    rotation = matrix_from_quat(quat_mul(inverse, states[..., 3:7]))[..., :2].flatten(2)
    return torch.cat((quat_apply(inverse, states[..., :3] - frame[..., :3]), rotation), dim=2).flatten(1)
