"""Normalisation of a vector by a dataset's statistics, in LeRobot's kinds. Shapes: D size of the vector.

``mean`` and ``std`` are mean and std, or of a range its low end and half its width.
"""

from __future__ import annotations

import torch

EPSILON = 1e-8
"""Added to a std that is divided by."""


def shift_of(kind: str) -> float:
    """Return what is added to a normalised vector: a range goes to [-1, 1]."""
    return 0.0 if kind in ("IDENTITY", "MEAN_STD") else -1.0


def normalized(x: torch.Tensor, mean: torch.Tensor, std: torch.Tensor, kind: str) -> torch.Tensor:
    """Return vectors [..., D] normalised."""
    return (x - mean) / divisor(std, kind) + shift_of(kind)


def denormalized(x: torch.Tensor, mean: torch.Tensor, std: torch.Tensor, kind: str) -> torch.Tensor:
    """Return the vectors [..., D] of normalised ones."""
    return (x - shift_of(kind)) * std + mean


def divisor(std: torch.Tensor, kind: str) -> torch.Tensor:
    """Return what vectors are divided by, [D]."""
    return std + EPSILON if kind == "MEAN_STD" else std
