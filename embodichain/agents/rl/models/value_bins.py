"""Values as distributions over bins. Legend: ... any batch dimensions, K bins."""

import math

import torch
from torch import nn

NUM_BINS = 101
_SMOOTHING = 0.75  # std of a target, bins: the paper's


class ValueBins(nn.Module):
    """A critic's value as the mean of a distribution over bins, learned by cross-entropy: HL-Gauss.

    Farebrother et al., "Stop Regressing: Training Value Functions via Classification for Scalable Deep RL", 2024. The
    target of a bin is the probability in it of a normal distribution around the target value, of a std of 0.75 bins.

    Args:
        low, high: values at the outer edges of the bins; targets beyond are clamped.
    """

    edges: torch.Tensor  # [K + 1]

    def __init__(self, low: float, high: float, num_bins: int = NUM_BINS) -> None:
        super().__init__()
        self.register_buffer("edges", torch.linspace(low, high, num_bins + 1), persistent=False)
        self.std = _SMOOTHING * (high - low) / num_bins

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the values [...] of logits [..., K]."""
        centres = (self.edges[1:] + self.edges[:-1]) / 2
        # A product of matrices would be bfloat16 with that precision.
        return (logits.float().softmax(-1) * centres).sum(-1)

    def loss(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy [...] of logits [..., K] for target values [...]; NaN where one is infinite."""
        finite = torch.where(target.isfinite(), target, torch.nan)
        centre = finite.clamp(self.edges[0], self.edges[-1]).unsqueeze(-1)
        below = torch.erf((self.edges - centre) / (math.sqrt(2) * self.std))
        probability = below.diff(dim=-1) / (below[..., -1:] - below[..., :1])
        return -(probability * logits.float().log_softmax(-1)).sum(-1)
