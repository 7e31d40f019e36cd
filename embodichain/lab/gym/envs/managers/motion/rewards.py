"""Rewards of tracking: ``func(env, **params)``."""

import torch
from pydantic import PositiveFloat
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import TermEnv
from embodichain.lab.gym.envs.managers.motion.commands import TrackingError, motion_of


def motion_tracking_exp(env: TermEnv, of: TrackingError, std: PositiveFloat) -> Tensor:
    """Return exp(-mean |e|^2 / std^2) of one kind of error e, the mean over bodies or joints (BeyondMimic).

    Args:
        of: position or rotation of the anchor, in the world; positions or rotations of the bodies, to the aligned
            ones; their linear or angular velocities, in the world; or positions of the joints.
        std: error at which the reward is 1 / e: m, rad, m/s or rad/s.
    """
    error = motion_of(env).error(of)
    return torch.exp(error.square().sum(dim=2).mean(dim=1) * (-1.0 / std**2))
