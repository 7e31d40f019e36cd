"""State computed for several locomotion terms. Shapes: N environments, F feet."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.term_env import TermEnv

# Commands below this are to stand still, m/s and rad/s: their norm.
STANDING_COMMAND = 0.1


def height_above_ground(env: TermEnv, pos: Tensor) -> Tensor:
    """Return the height of points above the ground below them, [...], for positions [..., 3], m."""
    return pos[..., 2] - ground_height(env, pos[..., :2])


def ground_height(env: TermEnv, xy: Tensor) -> Tensor:
    """Return the height of the ground at points [..., 2], [...], m."""
    terrain = env.sim.terrain
    return torch.zeros_like(xy[..., 0]) if terrain is None else terrain.height_at(xy)


def is_moving(command: Tensor) -> Tensor:
    """Return which commands [N, C] are not to stand still, [N] bool."""
    return command.square().sum(dim=1) > STANDING_COMMAND**2


def gait_clock(env: TermEnv, frequency: float) -> Tensor:
    """Return the phase of a gait's clock, [N], rad: 0 at the start of each episode.

    Args:
        frequency: strides in a second, 1/s.
    """
    cycles = env.elapsed_steps * (env.step_dt * frequency)
    return torch.frac(cycles) * (2 * math.pi)
