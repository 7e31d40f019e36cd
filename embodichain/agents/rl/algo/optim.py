"""Gradient steps: cut to a norm, averaged over processes, skipped where something is not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import nn

from embodichain.agents.rl.distributed import get_process_group
from embodichain.utils.profiling import section

__all__ = [
    "MetricMeans",
    "StepWatcher",
    "adapted_learning_rate",
    "gradient_step",
    "take_step_counts",
    "watching_steps",
]

MIN_LEARNING_RATE = 1e-5  # bounds of the adapted learning rate
MAX_LEARNING_RATE = 1e-2

StepWatcher = Callable[[torch.Tensor], None]
"""Called by ``gradient_step`` with the loss, when the gradients are computed and not yet cut."""

_COUNTS: WeakKeyDictionary[torch.optim.Optimizer, tuple[int, torch.Tensor]] = WeakKeyDictionary()
"""How many steps were asked for, and how many were skipped, a scalar on the device."""
_WATCHERS: list[StepWatcher] = []


def gradient_step(
    optimizer: torch.optim.Optimizer,
    parameters: Iterable[nn.Parameter],
    loss: torch.Tensor,
    max_norm: float,
    samples: torch.Tensor | None = None,
) -> torch.Tensor:
    """Descend a loss, with the gradient cut to ``max_norm``; return the gradient's norm before that, a scalar.

    Where several processes share the training, the gradient is that of the mean loss over the samples of all.

    Where the loss or any part of the gradient is not finite, neither is the norm that is returned, and the step is
    skipped, on all processes: parameters and optimizer stay as they are, to the last bit. A fused optimizer decides
    that on the device; for others the host reads the norm, for which it has to wait where the device is not the CPU.

    Args:
        optimizer: of these parameters.
        parameters: whose gradient is cut.
        loss: a mean over samples, scalar.
        max_norm: the gradient's largest norm.
        samples: how many they are, a scalar, where the processes may have different numbers, as where some are masked.
    """
    parameters = list(parameters)
    stepped = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter in stepped:
        parameter.grad = None  # Optimizer.zero_grad does the same, and needs as long as a small network's layer
    # The factor is 1, or not-a-number for a loss that is not finite: so the gradients alone tell, and still do when
    # they have been averaged over processes.
    (loss * (1 + 0 * loss.detach())).backward()
    get_process_group().average_gradients([*parameters, *stepped], samples)
    for watch in _WATCHERS:
        watch(loss)
    norm = nn.utils.clip_grad_norm_(parameters, max_norm)
    is_bad = ~norm.isfinite()
    asked, skipped = _COUNTS.get(optimizer, (0, 0))
    _COUNTS[optimizer] = (asked + 1, skipped + is_bad.long())
    with section("optimizer"):
        if all(group.get("fused") for group in optimizer.param_groups):
            _step_unless(optimizer, is_bad)
        elif not is_bad:
            optimizer.step()
    return norm


def _step_unless(optimizer: torch.optim.Optimizer, is_bad: torch.Tensor) -> None:
    """Step a fused optimizer, which does nothing where ``is_bad``; this is how torch's ``GradScaler`` tells it."""
    optimizer.found_inf = is_bad.float()  # type: ignore[attr-defined]
    try:
        optimizer.step()
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]


def take_step_counts(optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
    """Return how many steps ``gradient_step`` was asked for since the last call, and how many it skipped: int64 [2].

    None where it was not called.
    """
    counts = _COUNTS.pop(optimizer, None)
    if counts is None:
        return None
    asked, skipped = counts
    return torch.stack((torch.full_like(skipped, asked), skipped))


@contextmanager
def watching_steps(watcher: StepWatcher) -> Iterator[None]:
    """Let ``watcher`` see every ``gradient_step`` while this is entered."""
    _WATCHERS.append(watcher)
    try:
        yield
    finally:
        _WATCHERS.remove(watcher)


def adapted_learning_rate(learning_rate: torch.Tensor, kl: torch.Tensor, desired_kl: float) -> torch.Tensor:
    """Return the learning rate divided by 1.5 where KL > 2 desired, times 1.5 where KL < desired / 2, within bounds.

    The rule of rsl_rl (Rudin et al., "Learning to Walk in Minutes Using Massively Parallel Deep Reinforcement
    Learning", CoRL 2021), as a tensor, so that the host does not wait for the device. The bounds are 1e-5 and 1e-2.

    Args:
        learning_rate: scalar.
        kl: KL(old || new), scalar.
        desired_kl: what it should be.
    """
    rate = torch.where(kl > 2 * desired_kl, learning_rate / 1.5, learning_rate)
    rate = torch.where(kl < desired_kl / 2, learning_rate * 1.5, rate)
    return rate.clamp(MIN_LEARNING_RATE, MAX_LEARNING_RATE)


class MetricMeans:
    """Means of scalars over the minibatches whose step was made, summed on the device and read once an update."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._sums: torch.Tensor | float = 0.0  # [names]
        self._count: torch.Tensor | int = 0

    def add(self, metrics: dict[str, torch.Tensor]) -> None:
        """Add the scalars of one minibatch; each time the same names.

        Args:
            metrics: ``grad_norm``, what ``gradient_step`` returned, is among them, and says whether they count.
        """
        self._names = list(metrics)
        made = metrics["grad_norm"].isfinite()
        # Together: each operation on a scalar costs as much as one on all of them.
        self._sums = self._sums + torch.where(made, torch.stack(list(metrics.values())), 0.0)
        self._count = self._count + made

    def read(self, **others: torch.Tensor) -> dict[str, float]:
        """Return the means, and other scalars as they are, in one transfer from the device.

        Where no step was made there is nothing to average: all means are not-a-number.
        """
        assert isinstance(self._sums, torch.Tensor)  # there was a minibatch
        values = torch.cat((self._sums / self._count, *(x.reshape(1) for x in others.values())))
        return dict(zip((*self._names, *others), values.tolist(), strict=True))
