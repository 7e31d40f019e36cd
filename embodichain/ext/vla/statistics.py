"""Normalisation of a vector by a dataset's statistics, in LeRobot's kinds. Shapes: D size of the vector.

``mean`` and ``std`` are mean and std, or of a range its low end and half its width.
"""

from __future__ import annotations

from typing import Literal

import torch

Normalization = Literal["IDENTITY", "MEAN_STD", "MIN_MAX", "QUANTILES", "QUANTILE10"]
"""Kinds of scaling of a vector by statistics: to mean 0 and std 1, or a range to [-1, 1]; LeRobot's names."""

EPSILON = 1e-8
"""Added to a std that is divided by."""
ENDS = {"MIN_MAX": ("min", "max"), "QUANTILES": ("q01", "q99"), "QUANTILE10": ("q10", "q90")}
"""The statistics that are the ends of a range, by kind."""

_QUANTILES = {"MIN_MAX": (0.0, 1.0), "QUANTILES": (0.01, 0.99), "QUANTILE10": (0.1, 0.9)}


def shift_of(kind: str) -> float:
    """Return the shift added to a normalised vector: a range is scaled to [-1, 1]."""
    return 0.0 if kind in ("IDENTITY", "MEAN_STD") else -1.0


def normalized(x: torch.Tensor, mean: torch.Tensor, std: torch.Tensor, kind: str) -> torch.Tensor:
    """Return vectors [..., D] normalised."""
    return (x - mean) / divisor(std, kind) + shift_of(kind)


def denormalized(x: torch.Tensor, mean: torch.Tensor, std: torch.Tensor, kind: str) -> torch.Tensor:
    """Return the vectors [..., D] of normalised ones."""
    return (x - shift_of(kind)) * std + mean


def fitted(x: torch.Tensor, kind: Normalization) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the statistics of vectors [M, D] as mean and std [D]; ``IDENTITY`` changes nothing."""
    if kind == "IDENTITY":
        return x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])
    if kind == "MEAN_STD":
        is_constant = x.amax(0) == x.amin(0)  # else rounding would leave a std that is not 0
        return x.double().mean(0).float(), x.double().std(0, correction=0).float().masked_fill(is_constant, 0.0)
    places = x.new_tensor(_QUANTILES[kind])
    low, high = torch.stack([column.quantile(places) for column in x.T], dim=1)
    return low, half_width(low, high)


def half_width(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return half the width of ranges, which is never 0."""
    return torch.where(high == low, EPSILON, high - low) / 2


def divisor(std: torch.Tensor, kind: str) -> torch.Tensor:
    """Return the divisor of vectors, [D]."""
    return std + EPSILON if kind == "MEAN_STD" else std
