"""Poses of cameras."""

from __future__ import annotations

import torch
from torch import Tensor

from embodichain.lab.sim.math import pose_from_pos_matrix

__all__ = ["look_at"]


def look_at(eye: Tensor, target: Tensor, up: Tensor) -> Tensor:
    """Return poses [..., 4, 4] of cameras at ``eye`` ``target`` in the middle and ``up`` upwards, [..., 3] each."""
    forward = torch.nn.functional.normalize(target - eye, dim=-1)
    right = torch.nn.functional.normalize(torch.linalg.cross(forward, up), dim=-1)
    return pose_from_pos_matrix(eye, torch.stack((right, torch.linalg.cross(right, forward), -forward), dim=-1))
