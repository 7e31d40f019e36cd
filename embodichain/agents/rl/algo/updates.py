"""What the algorithms' updates have in common.

Legend: M transitions or sequences of a batch, L sequence length.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.distributed import get_ranks
from embodichain.agents.rl.models import Policy

__all__ = ["MetricMeans", "evaluate_batch", "gradient_step"]


class MetricMeans:
    """Means of scalars over the minibatches, kept on the device until the update's end."""

    def __init__(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        self._count = 0

    def add(self, metrics: dict[str, torch.Tensor]) -> None:
        """Take in the scalars of one minibatch; each time the same names."""
        for name, value in metrics.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        self._count += 1

    def read(self, **others: torch.Tensor) -> dict[str, float]:
        """Return the means, and other scalars as they are, in one transfer: each would wait for the device alone."""
        scalars = {name: total / self._count for name, total in self._sums.items()} | others
        return dict(zip(scalars, torch.stack(list(scalars.values())).tolist(), strict=True))


def gradient_step(
    optimizer: torch.optim.Optimizer,
    parameters: Iterable[nn.Parameter],
    loss: torch.Tensor,
    max_norm: float,
    samples: torch.Tensor | None = None,
) -> torch.Tensor:
    """Descend a loss, with the gradient cut to ``max_norm``; return the gradient's norm before that, a scalar.

    Where several processes share the training, the gradient is that of the mean loss over the samples of all.

    Args:
        optimizer: of these parameters.
        parameters: whose gradient is cut.
        loss: a mean over samples, scalar.
        max_norm: the gradient's largest norm.
        samples: how many they are, a scalar, where the processes may have different numbers, as where some are masked.
    """
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    parameters = list(parameters)
    stepped = [p for group in optimizer.param_groups for p in group["params"]]
    get_ranks().average_gradients([*parameters, *stepped], samples)
    norm = nn.utils.clip_grad_norm_(parameters, max_norm)
    optimizer.step()
    return norm


@torch.no_grad()
def evaluate_batch(policy: Policy, batch: TensorDict, batch_size: int) -> TensorDict:
    """Return ``policy.evaluate_actions`` of a whole batch, computed in pieces, without gradients.

    Args:
        policy: the policy.
        batch: [M] or [M, L], from ``learning_batch``.
        batch_size: transitions evaluated at a time.
    """
    length = batch.batch_size[1:].numel()
    pieces = batch.split(max(1, batch_size // length))
    return TensorDict.cat([policy.evaluate_actions(piece) for piece in pieces])
