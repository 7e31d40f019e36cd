"""Rewards of tracking: ``func(env, obs, action, info, std)``, exp(-error^2 / std^2)."""

from typing import Any

import torch
from pydantic import PositiveFloat
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import TermEnv
from embodichain.lab.gym.envs.managers.motion.commands import motion_of
from embodichain.lab.sim.math import quat_angle

__all__ = [
    "motion_anchor_pos_exp",
    "motion_anchor_rot_exp",
    "motion_body_ang_vel_exp",
    "motion_body_lin_vel_exp",
    "motion_body_pos_exp",
    "motion_body_rot_exp",
    "motion_joint_pos_exp",
]


def motion_anchor_pos_exp(
    env: TermEnv, obs: TensorDict, action: Tensor, info: dict[str, Any], std: PositiveFloat = 0.3
) -> Tensor:
    """Return exp(-|x - x_ref|^2 / std^2) of the anchor's position (BeyondMimic).

    Args:
        std: error at which the reward is 1 / e, m.
    """
    motion = motion_of(env)
    return _kernel((motion.robot() - motion.reference())[:, -1:, :3], std)


def motion_anchor_rot_exp(
    env: TermEnv, obs: TensorDict, action: Tensor, info: dict[str, Any], std: PositiveFloat = 0.4
) -> Tensor:
    """Return exp(-angle^2 / std^2) of the angle between the anchor's rotation and the reference's (BeyondMimic).

    Args:
        std: error at which the reward is 1 / e, rad.
    """
    motion = motion_of(env)
    return _kernel(quat_angle(motion.robot()[:, -1:, 3:7], motion.reference()[:, -1:, 3:7])[..., None], std)


def motion_body_pos_exp(
    env: TermEnv, obs: TensorDict, action: Tensor, info: dict[str, Any], std: PositiveFloat = 0.3
) -> Tensor:
    """Return exp(-mean |x - x_ref|^2 / std^2) over the bodies' positions and the aligned ones (BeyondMimic).

    Args:
        std: error at which the reward is 1 / e, m.
    """
    motion = motion_of(env)
    return _kernel((motion.robot()[..., :3] - motion.aligned()[..., :3])[:, :-1], std)


def motion_body_rot_exp(
    env: TermEnv, obs: TensorDict, action: Tensor, info: dict[str, Any], std: PositiveFloat = 0.4
) -> Tensor:
    """Return exp(-mean angle^2 / std^2) over the bodies' rotations and the aligned ones (BeyondMimic).

    Args:
        std: error at which the reward is 1 / e, rad.
    """
    motion = motion_of(env)
    return _kernel(quat_angle(motion.robot()[..., 3:7], motion.aligned()[..., 3:7])[:, :-1, None], std)


def motion_body_lin_vel_exp(
    env: TermEnv, obs: TensorDict, action: Tensor, info: dict[str, Any], std: PositiveFloat = 1.0
) -> Tensor:
    """Return exp(-mean |v - v_ref|^2 / std^2) over the bodies' linear velocities (BeyondMimic).

    Args:
        std: error at which the reward is 1 / e, m/s.
    """
    motion = motion_of(env)
    return _kernel((motion.robot() - motion.reference())[:, :-1, 7:10], std)


def motion_body_ang_vel_exp(
    env: TermEnv, obs: TensorDict, action: Tensor, info: dict[str, Any], std: PositiveFloat = 3.14
) -> Tensor:
    """Return exp(-mean |w - w_ref|^2 / std^2) over the bodies' angular velocities (BeyondMimic).

    Args:
        std: error at which the reward is 1 / e, rad/s.
    """
    motion = motion_of(env)
    return _kernel((motion.robot() - motion.reference())[:, :-1, 10:], std)


def motion_joint_pos_exp(
    env: TermEnv, obs: TensorDict, action: Tensor, info: dict[str, Any], std: PositiveFloat = 0.3
) -> Tensor:
    """Return exp(-mean (q - q_ref)^2 / std^2) over the joints' positions (DeepMimic, with a mean for its sum).

    Args:
        std: error at which the reward is 1 / e, rad.
    """
    return _kernel((env.robot.get_qpos() - motion_of(env).joints()[:, : env.robot.dof])[..., None], std)


def _kernel(difference: Tensor, std: float) -> Tensor:
    """Return exp(-mean |d|^2 / std^2) over B differences, [N], of vectors [N, B, ...]."""
    return torch.exp(difference.square().flatten(2).sum(dim=2).mean(dim=1) * (-1.0 / std**2))
