"""Random numbers of events. Shapes: n environments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.term_env import TermEnv
from embodichain.lab.sim.math import quat_from_euler, quat_mul


def draw(env: TermEnv, env_ids: Tensor, bounds: Sequence[Sequence[float]], size: int) -> Tensor:
    """Return numbers between ``[lowest, highest]``, each a list of ``size`` or one for all, [n, size]."""
    low, high = _bounds(tuple(map(tuple, bounds)), env.device)
    return env.random.uniform(env_ids, low, high, size)


def draw_number(env: TermEnv, env_ids: Tensor, bounds: Sequence[float]) -> Tensor:
    """Return one number between ``[lowest, highest]``, [n]."""
    low, high = bounds
    return env.random.uniform(env_ids, low, high, 1).squeeze(1)


def draw_pose(
    env: TermEnv,
    env_ids: Tensor,
    row: Tensor,
    position_range: Sequence[Sequence[float]] | None,
    rotation_range: Sequence[Sequence[float]] | None,
    relative_position: bool,
    relative_rotation: bool,
) -> Tensor:
    """Return random poses, [n, 7]: position, quaternion wxyz.

    Args:
        row: [n, 7] or [7] base values of the ranges, kept where there is no range.
        position_range: range of x, y, z, m.
        rotation_range: range of the Euler angles, degrees.
        relative_position: add ``row``'s position.
        relative_rotation: turn after ``row``'s rotation (about the fixed axes), else instead.
    """
    row = row.expand(len(env_ids), 7)
    pos, quat = row[:, :3], row[:, 3:]
    if position_range is not None:
        drawn = draw(env, env_ids, position_range, 3)
        pos = drawn + pos if relative_position else drawn
    if rotation_range is not None:
        turn = euler_degrees(draw(env, env_ids, rotation_range, 3))
        quat = quat_mul(turn, quat) if relative_rotation else turn
    return torch.cat((pos, quat), dim=1)


def euler_degrees(angles: Tensor) -> Tensor:
    """Return unit quaternions [n, 4] of Euler angles [n, 3] in degrees."""
    return quat_from_euler(angles * (math.pi / 180))


@lru_cache
def _bounds(bounds: tuple[tuple[float, ...], ...], device: torch.device) -> tuple[Tensor, Tensor]:
    low, high = torch.tensor(bounds, dtype=torch.float32, device=device)
    return low, high
