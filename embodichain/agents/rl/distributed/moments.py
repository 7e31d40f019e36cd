"""Mean and variance of samples that come in parts.

Legend: n samples, O their size, W parts.
"""

from __future__ import annotations

import torch

__all__ = ["merged_moments", "moments"]


def moments(x: torch.Tensor) -> torch.Tensor:
    """Return the number of samples [n, O], their mean, and their sum of squared deviations from it: a row [1 + 2 O]."""
    mean = x.mean(0) if len(x) else x.new_zeros(x.shape[1])
    return torch.cat((x.new_full((1,), x.shape[0]), mean, (x - mean).square().sum(0)))


def merged_moments(parts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the number, mean and sum of squared deviations of all samples together: [], [O], [O].

    Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979. Parts
    are taken in their order, so that who merges the same parts gets the same bits. Parts may be empty.

    Args:
        parts: rows of :func:`moments`, float64 [W, 1 + 2 O].
    """
    size = (parts.shape[1] - 1) // 2
    count, mean, m2 = parts[0].split((1, size, size))
    for part in parts[1:]:
        n, part_mean, part_m2 = part.split((1, size, size))
        total = (count + n).clamp(min=1)
        delta = torch.where(n > 0, part_mean - mean, 0.0)
        m2 = m2 + torch.where(n > 0, part_m2, 0.0) + delta.square() * (count * n / total)
        mean = mean + delta * (n / total)
        count = count + n
    return count.squeeze(0), mean, m2
