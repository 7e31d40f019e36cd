"""Gradient steps: clipped to a norm, averaged over processes, skipped if not finite."""

import math
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import torch
from torch import nn
from typing_extensions import override

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

    With several processes the gradient is of the mean loss over all processes' samples.

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
    # The first gradient is 1, or NaN for a loss that is not finite: so all gradients show it, also after averaging.
    loss.backward(1 + 0 * loss.detach())
    get_process_group().average_gradients([*parameters, *stepped], samples)
    # As nn.utils.clip_grad_norm_, which takes as long as a small network's layers.
    gradients = [p.grad for p in parameters if p.grad is not None] or [torch.zeros_like(loss)]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    if max_norm < math.inf:
        torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp(max=1))
    is_bad = (0 * norm).ne(0)  # ~norm.isfinite(), of fewer calls
    asked, skipped = _COUNTS.get(optimizer, (0, 0))
    _COUNTS[optimizer] = (asked + 1, skipped + is_bad)
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


class FusedAdam(torch.optim.Adam):
    """AdamW in its fused form, with steps that ``gradient_step`` skips on the device; half of torch's time on a CPU.

    It takes a learning rate in a tensor, too. ``weight_decay`` is decoupled: Loshchilov and Hutter, "Decoupled Weight
    Decay Regularization", 2019.
    """

    found_inf: torch.Tensor | None = None
    """1 where the step is to be skipped, a scalar; None: it is made."""

    @torch.no_grad()
    @override
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        found_inf = self.found_inf
        for group in self.param_groups:
            parameters, grads, means, squares, _, steps = lists = tuple(list[torch.Tensor]() for _ in range(6))
            self._init_group(group, *lists)
            if not parameters:
                continue  # none has a gradient
            if found_inf is None:
                torch._foreach_add_(steps, 1)
            else:
                torch._foreach_add_(steps, [1 - found_inf] * len(steps))
            torch._fused_adamw_(
                *(parameters, grads, means, squares, [], steps),
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
                found_inf=found_inf,
            )


def take_step_counts(optimizers: Iterable[torch.optim.Optimizer]) -> list[tuple[int, int]]:
    """Return the numbers of calls and of skipped steps of ``gradient_step`` since the last call, by optimizer.

    Optimizers without a call are left out.
    """
    counts = [_COUNTS.pop(optimizer) for optimizer in optimizers if optimizer in _COUNTS]
    skipped = torch.stack([count for _, count in counts]).tolist() if counts else []
    return [(asked, count) for (asked, _), count in zip(counts, skipped, strict=True)]


def adapted_learning_rate(
    learning_rate: torch.Tensor, kl: torch.Tensor, desired_kl: float, initial: float
) -> torch.Tensor:
    """Return the learning rate divided by 1.5 if KL > 2 desired, times 1.5 if KL < desired / 2, within bounds.

    The rule of rsl_rl (Rudin et al., "Learning to Walk in Minutes Using Massively Parallel Deep Reinforcement
    Learning", CoRL 2021), as a tensor, so that the host does not wait for the device. The bounds are 1e-5 and 1e-2, or
    an ``initial`` rate outside of them. ``kl`` is KL(old || new); all are scalars.
    """
    rate = torch.where(kl > 2 * desired_kl, learning_rate / 1.5, learning_rate)
    rate = torch.where(kl < desired_kl / 2, learning_rate * 1.5, rate)
    return rate.clamp(min(1e-5, initial), max(1e-2, initial))


class MetricMeans:
    """Means of scalars over the minibatches without a skipped step, read from the device once an update."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._rows: list[torch.Tensor] = []  # [names] of each minibatch

    def add(self, metrics: dict[str, torch.Tensor]) -> None:
        """Add the scalars of one minibatch, with the same names each time; they count if ``grad_norm`` is finite."""
        self._names = list(metrics)
        self._rows.append(torch.stack(list(metrics.values())))

    def read(self, **others: torch.Tensor) -> dict[str, float]:
        """Return the means, NaN if all steps were skipped, and other scalars, in one transfer from the device.

        Without a minibatch there are no means.
        """
        if not self._rows:
            return {name: x.item() for name, x in others.items()}
        rows = torch.stack(self._rows)
        made = rows[:, [self._names.index("grad_norm")]].isfinite()
        means = torch.where(made, rows, 0.0).sum(dim=0) / made.sum()
        values = torch.cat((means, *(x.reshape(1) for x in others.values())))
        return dict(zip((*self._names, *others), values.tolist(), strict=True))
