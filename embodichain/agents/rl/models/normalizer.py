"""Running normalisation of observations.

Legend: ... any batch dimensions, O size of the normalised vector.
"""

from __future__ import annotations

import torch
from torch import nn

from embodichain.agents.rl.distributed import get_ranks, merged_moments, moments

__all__ = ["RunningNormalizer"]

CLIP = 10.0  # deviations beyond which a normalised component is cut
EPS = 1e-8  # added to the variance


class RunningNormalizer(nn.Module):
    """(x - mean) / sqrt(var + eps), cut at +-10, with the mean and variance of all vectors given to ``update``.

    Batches are merged by Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
    Variances", 1979. The accumulators are float64: in float32 a long run's count stops growing at 2^24. Before the
    first ``update`` vectors pass unscaled. All statistics are in the state dict.

    Vectors with a component that is not finite are left out: a single one would make every later input not-a-number.

    Args:
        dim: O.
    """

    count: torch.Tensor  # float64 []
    mean: torch.Tensor  # float64 [O]
    m2: torch.Tensor  # float64 [O], sum of squared deviations from the mean
    shift: torch.Tensor  # float32 [O], what forward subtracts
    scale: torch.Tensor  # float32 [O], what forward multiplies by

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(dim, dtype=torch.float64))
        self.register_buffer("m2", torch.zeros(dim, dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise float32 [..., O]; the statistics stay as they are, in training mode too."""
        return ((x - self.shift) * self.scale).clamp(-CLIP, CLIP)

    @torch.no_grad()
    def update(self, batch: torch.Tensor) -> None:
        """Merge a batch [..., O], and with it those of all processes that share the training, into the statistics."""
        x = batch.reshape(-1, self.mean.shape[0]).double()
        own = moments(x)
        if not own.isfinite().all():  # in float64 that is so only where a component is not
            own = moments(x[x.isfinite().all(1)])
        n, batch_mean, batch_m2 = merged_moments(get_ranks().gather(own))
        if not n:
            return
        delta = batch_mean - self.mean
        total = self.count + n
        self.mean += delta * (n / total)
        self.m2 += batch_m2 + delta.square() * (self.count * n / total)
        self.count.copy_(total)
        self.shift.copy_(self.mean)
        self.scale.copy_((self.m2 / total + EPS).rsqrt())
