"""Observation terms about the ground, level or not: ``func(env, **params)``. Shapes: N environments, P points."""

from __future__ import annotations

from functools import lru_cache

import torch
from pydantic import PositiveFloat
from torch import Tensor

from embodichain.lab.gym.envs.managers.locomotion_state import ground_height
from embodichain.lab.gym.envs.managers.measurements import measured
from embodichain.lab.gym.envs.managers.term_env import TermEnv

__all__ = ["height_scan"]


@measured("heights of the ground below a grid of points around the robot, relative to its base, m")
def height_scan(
    env: TermEnv,
    size: tuple[PositiveFloat, PositiveFloat] = (1.6, 1.0),
    resolution: PositiveFloat = 0.1,
    clip: PositiveFloat = 1.0,
) -> Tensor:
    """Return the heights of the ground below a grid of points around the robot, relative to its base, [N, P], m.

    The grid turns with the robot about the vertical axis. Point ``i * Py + j`` is the i-th along the robot's x, from
    behind it, and the j-th along y, from its right, of Px times Py points.

    Args:
        size: size of the grid along x and y, m.
        resolution: distance between neighbouring points, m.
        clip: largest height above or below the base, m.
    """
    row = env.robot.get_local_pose()
    xy = row[:, None, :2] + _turned(_grid(tuple(size), resolution, env.device), env.robot.base.rotation()[:, :2, 0])
    return torch.clamp(ground_height(env, xy) - row[:, 2:3], -clip, clip)


def _turned(points: Tensor, ahead: Tensor) -> Tensor:
    """Return points [P, 2] turned by headings, [N, P, 2].

    Args:
        ahead: [N, 2] the robot's x axis seen from above; where that is a point, so is the grid, below the base.
    """
    cos, sin = torch.nn.functional.normalize(ahead, dim=-1)[:, :, None].unbind(1)
    px, py = points.unbind(-1)
    return torch.stack((cos * px - sin * py, sin * px + cos * py), dim=-1)


@lru_cache
def _grid(size: tuple[float, float], resolution: float, device: torch.device) -> Tensor:
    """Return the points of a grid around the origin, [P, 2], m; y changes fastest."""
    along = [resolution * (torch.arange(n) - (n - 1) / 2) for n in (round(edge / resolution) + 1 for edge in size)]
    return torch.cartesian_prod(*along).to(device)
