"""Gradient steps: clipped to a norm, averaged over processes, skipped if not finite."""

from collections.abc import Iterable
from weakref import WeakKeyDictionary

import torch
from torch import nn

from embodichain.agents.rl.distributed import get_process_group
from embodichain.utils.profiling import section

_COUNTS: WeakKeyDictionary[torch.optim.Optimizer, tuple[int, torch.Tensor]] = WeakKeyDictionary()
"""Number of calls, and of skipped steps as a scalar on the device."""


def gradient_step(
    optimizer: torch.optim.Optimizer,
    parameters: Iterable[nn.Parameter],
    loss: torch.Tensor,
    max_norm: float,
    samples: torch.Tensor | None = None,
) -> torch.Tensor:
    """Descend a loss, with the gradient clipped to ``max_norm``; return the norm before clipping, a scalar.

    With several processes the gradient is that of the mean loss over the samples of all.

    If the loss or any part of the gradient is not finite, the norm is not finite, and the step is skipped on all
    processes: parameters and optimizer stay bit-identical. A fused optimizer decides that on the device; for others the
    host reads the norm, and waits for a GPU.

    Args:
        loss: a mean over samples, scalar.
        samples: their number, a scalar; needed if it differs between processes, as with masks.
    """
    parameters = list(parameters)
    stepped = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter in stepped:
        parameter.grad = None  # as Optimizer.zero_grad, which takes as long as a small network's layer
    # The factor is 1, or NaN for a loss that is not finite: so the gradients alone show it, also after averaging.
    (loss * (1 + 0 * loss.detach())).backward()
    get_process_group().average_gradients([*parameters, *stepped], samples)
    norm = nn.utils.clip_grad_norm_(parameters, max_norm)
    is_bad = ~norm.isfinite()
    asked, skipped = _COUNTS.get(optimizer, (0, 0))
    _COUNTS[optimizer] = (asked + 1, skipped + is_bad.long())
    with section("optimizer"):
        if all(group.get("fused") for group in optimizer.param_groups):
            # Skipped on the device if ``is_bad``, in the way of torch's ``GradScaler``.
            optimizer.found_inf = is_bad.float()  # type: ignore[attr-defined]
            try:
                optimizer.step()
            finally:
                del optimizer.found_inf  # type: ignore[attr-defined]
        elif not is_bad:
            optimizer.step()
    return norm


def take_step_counts(optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
    """Return the numbers of calls and of skipped steps of ``gradient_step`` since the last call, int64 [2], or None."""
    counts = _COUNTS.pop(optimizer, None)
    if counts is None:
        return None
    asked, skipped = counts
    return torch.stack((torch.full_like(skipped, asked), skipped))


def adapted_learning_rate(learning_rate: torch.Tensor, kl: torch.Tensor, desired_kl: float) -> torch.Tensor:
    """Return the learning rate divided by 1.5 if KL > 2 desired, times 1.5 if KL < desired / 2, within bounds.

    The rule of rsl_rl (Rudin et al., "Learning to Walk in Minutes Using Massively Parallel Deep Reinforcement
    Learning", CoRL 2021), as a tensor, so that the host does not wait for the device. The bounds are 1e-5 and 1e-2.
    ``kl`` is KL(old || new); all are scalars.
    """
    rate = torch.where(kl > 2 * desired_kl, learning_rate / 1.5, learning_rate)
    rate = torch.where(kl < desired_kl / 2, learning_rate * 1.5, rate)
    return rate.clamp(1e-5, 1e-2)


class MetricMeans:
    """Means of scalars over the minibatches without a skipped step, summed on the device, read once an update."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._sums: torch.Tensor | float = 0.0  # [names]
        self._count: torch.Tensor | int = 0

    def add(self, metrics: dict[str, torch.Tensor]) -> None:
        """Add the scalars of one minibatch, with the same names each time; they count if ``grad_norm`` is finite."""
        self._names = list(metrics)
        made = metrics["grad_norm"].isfinite()
        # Together: each operation on a scalar costs as much as one on all of them.
        self._sums = self._sums + torch.where(made, torch.stack(list(metrics.values())), 0.0)
        self._count = self._count + made

    def read(self, **others: torch.Tensor) -> dict[str, float]:
        """Return the means, NaN if all steps were skipped, and other scalars, in one transfer from the device.

        Without a minibatch there are no means.
        """
        if not isinstance(self._sums, torch.Tensor):
            return {name: x.item() for name, x in others.items()}
        values = torch.cat((self._sums / self._count, *(x.reshape(1) for x in others.values())))
        return dict(zip((*self._names, *others), values.tolist(), strict=True))
