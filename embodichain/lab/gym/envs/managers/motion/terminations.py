"""Ends of episodes that left the reference: ``func(env, **params)``."""

import torch
from pydantic import PositiveFloat
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import TermEnv
from embodichain.lab.gym.envs.managers.motion.commands import index_of, motion_of
from embodichain.utils.device import constant

__all__ = ["motion_anchor_height", "motion_anchor_tilt", "motion_body_heights"]


def motion_anchor_height(env: TermEnv, limit: PositiveFloat = 0.25) -> Tensor:
    """Return where the anchor is further than a limit above or below the reference's, [N] bool (BeyondMimic).

    Args:
        limit: m.
    """
    motion = motion_of(env)
    return (motion.robot() - motion.reference())[:, -1, 2].abs() > limit


def motion_anchor_tilt(env: TermEnv, limit: PositiveFloat = 0.8) -> Tensor:
    """Return where the anchor leans otherwise than the reference's, [N] bool (BeyondMimic).

    Args:
        limit: difference of the vertical components of their z axes, 0 to 2.
    """
    motion = motion_of(env)
    lean = [2.0 * states[:, -1, 4:6].square().sum(dim=1) for states in (motion.robot(), motion.reference())]
    return (lean[0] - lean[1]).abs() > limit


def motion_body_heights(env: TermEnv, bodies: list[str], limit: PositiveFloat = 0.25) -> Tensor:
    """Return where a hand or foot is further than a limit above or below the aligned one, [N] bool (BeyondMimic).

    Args:
        bodies: links among the command's.
        limit: m.
    """
    motion = motion_of(env)
    columns = constant(tuple(index_of(name, motion.body_names) for name in bodies), env.device)
    return torch.any((motion.robot()[..., 2] - motion.aligned()[..., 2])[:, columns].abs() > limit, dim=1)
