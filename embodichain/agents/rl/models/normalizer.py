"""Running normalisation of observations.

Legend: ... any batch dimensions, O size of the normalised vector.
"""

from dataclasses import dataclass

import torch
from torch import nn

from embodichain.agents.rl.distributed.process_group import get_process_group, merged_moments, moments

CLIP = 10.0  # std at which a normalised component is clamped
EPS = 1e-8  # added to the variance
# A component is an outlier if it is further from the mean than both of these. Both are needed: a rare flag is hundreds
# of std from its mean, and forces or counters are large and vary as much.
OUTLIER = 1e4  # in the component's own unit
OUTLIER_STD = 1e3  # in std
FEW = 0.1  # largest share of outliers in the first batch


@dataclass(frozen=True)
class Outliers:
    """The components of a batch that were clamped before they entered the statistics."""

    count: int
    index: tuple[int, ...]  # of the first outlier in the batch [..., O]
    value: float  # of the first outlier
    mean: float  # expected mean at this index
    std: float  # expected std at this index


class RunningNormalizer(nn.Module):
    """(x - mean) / sqrt(var + eps), clamped to +-10, with the mean and variance of all vectors given to ``update``.

    Batches are merged by Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
    Variances", 1979. The accumulators are float64: in float32 a long run's count stops growing at 2^24. Before the
    first ``update`` vectors pass unscaled. All statistics are in the state dict.

    Vectors with a component that is not finite are left out: one of them would make every later input NaN. A finite
    outlier (see ``OUTLIER``) enters the statistics clamped to 10 std, as in ``forward``: a single 1e9 among 160,000
    numbers of size 1 would make all later ones the same to the policy.

    Args:
        dim: O.
    """

    count: torch.Tensor  # float64 []
    mean: torch.Tensor  # float64 [O]
    m2: torch.Tensor  # float64 [O], sum of squared deviations from the mean
    shift: torch.Tensor  # float32 [O], subtracted by forward
    scale: torch.Tensor  # float32 [O], factor in forward

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(dim, dtype=torch.float64))
        self.register_buffer("m2", torch.zeros(dim, dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))
        self.outliers: Outliers | None = None  # of the last ``update``

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise [..., O] to float32; the statistics stay as they are, in training mode too."""
        shift = self.mean if x.dtype == torch.float64 else self.shift
        return ((x - shift) * self.scale).clamp(-CLIP, CLIP).float()

    @torch.no_grad()
    def update(self, batch: torch.Tensor) -> None:
        """Merge a batch [B, ..., O] of each process of the training into the statistics."""
        x = batch.flatten(0, -2).double()
        own = moments(x)
        self.outliers = None
        if not self._is_unremarkable(own):
            is_kept = x.isfinite().all(1)
            own = moments(self._without_outliers(x, is_kept, batch.shape)[is_kept])
        n, batch_mean, batch_m2 = merged_moments(get_process_group().gather(own))
        if not n:
            return
        delta = batch_mean - self.mean
        total = self.count + n
        self.mean += delta * (n / total)
        self.m2 += batch_m2 + delta.square() * (self.count * n / total)
        self.count.copy_(total)
        self.shift.copy_(self.mean)
        self.scale.copy_((self.m2 / total + EPS).rsqrt())

    def _is_unremarkable(self, own: torch.Tensor) -> bool:
        """Return whether the moments of a batch show that all of it is finite and free of outliers.

        The sum of squared distances from the expected mean is at least the square of the largest. The median, which is
        expected at the first update, is at most one std from the mean, which is less than the root of that sum.
        """
        n, mean, m2 = own[0], *own[1:].chunk(2)
        expected = torch.where(self.count > 0, self.mean, mean)
        spread = m2 + n * (mean - expected).square()
        return bool((spread <= (OUTLIER / 2) ** 2).all())  # False for NaN

    def _without_outliers(self, x: torch.Tensor, is_kept: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Return rows [n, O] with clamped outliers, and set ``outliers``; ``shape`` is the batch's."""
        mean, std = self._expected(x[is_kept])
        distance = x - mean
        is_far = (distance.abs() > (OUTLIER_STD * std).clamp(min=OUTLIER)) & is_kept.unsqueeze(1)
        if not self.count:  # in the first batch only a small share can be outliers
            is_far &= is_far.sum(0) <= FEW * len(x)
        found = is_far.nonzero()
        if not len(found):
            return x
        row, column = found[0].tolist()
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(row), shape[:-1]))
        self.outliers = Outliers(
            len(found), (*index, column), x[row, column].item(), mean[column].item(), std[column].item()
        )
        return torch.where(is_far, mean + distance.sign() * CLIP * std, x)

    def _expected(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean and std [O] so far; before the first update, of the values near the median of rows [n, O]."""
        if self.count > 0:
            return self.mean, (self.m2 / self.count + EPS).sqrt()
        if not len(x):
            return self.mean, torch.ones_like(self.mean)
        middle = x.median(0).values
        is_near = (x - middle).abs() <= OUTLIER
        count = is_near.sum(0)  # at least the median itself
        mean = torch.where(is_near, x, 0.0).sum(0) / count
        var = torch.where(is_near, (x - mean).square(), 0.0).sum(0) / count
        return mean, (var + EPS).sqrt()
