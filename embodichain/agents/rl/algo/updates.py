"""What the algorithms' updates have in common.

Legend: M transitions or sequences of a batch, L sequence length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo.chunks import with_dims_of
from embodichain.agents.rl.distributed import get_ranks
from embodichain.agents.rl.models import Policy, action_log_prob

__all__ = [
    "MetricMeans",
    "StepWatcher",
    "evaluate_batch",
    "gradient_step",
    "is_rounded",
    "rounded_log_prob",
    "take_step_counts",
    "watching_steps",
]

StepWatcher = Callable[[torch.Tensor], None]
"""Called by ``gradient_step`` with the loss, when the gradients are computed and not yet cut."""

_COUNTS: WeakKeyDictionary[torch.optim.Optimizer, tuple[int, torch.Tensor]] = WeakKeyDictionary()
"""How many steps were asked for, and how many were skipped, a scalar on the device."""
_WATCHERS: list[StepWatcher] = []


class MetricMeans:
    """Means of scalars over the minibatches whose step was made, kept on the device until the update's end."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._sums: torch.Tensor | float = 0.0  # [names]
        self._count: torch.Tensor | int = 0

    def add(self, metrics: dict[str, torch.Tensor]) -> None:
        """Take in the scalars of one minibatch; each time the same names.

        Args:
            metrics: ``grad_norm``, what ``gradient_step`` returned, is among them, and says whether they count.
        """
        self._names = list(metrics)
        made = metrics["grad_norm"].isfinite()
        # Together: each operation on a scalar costs as much as one on all of them.
        self._sums = self._sums + torch.where(made, torch.stack(list(metrics.values())), 0.0)
        self._count = self._count + made

    def read(self, **others: torch.Tensor) -> dict[str, float]:
        """Return the means, and other scalars as they are, in one transfer: each would wait for the device alone.

        Where no step was made there is nothing to average: all means are not-a-number.
        """
        assert isinstance(self._sums, torch.Tensor)  # there was a minibatch
        values = torch.cat((self._sums / self._count, *(x.reshape(1) for x in others.values())))
        return dict(zip((*self._names, *others), values.tolist(), strict=True))


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
    skipped, on all processes: parameters and optimiser stay as they are, to the last bit. A fused optimiser decides
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
    get_ranks().average_gradients([*parameters, *stepped], samples)
    for watch in _WATCHERS:
        watch(loss)
    norm = nn.utils.clip_grad_norm_(parameters, max_norm)
    is_bad = ~norm.isfinite()
    _count(optimizer, is_bad)
    if all(group.get("fused") for group in optimizer.param_groups):
        _step_unless(optimizer, is_bad)
    elif not is_bad:
        optimizer.step()
    return norm


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
    """Let ``watcher`` see every ``gradient_step`` for a while."""
    _WATCHERS.append(watcher)
    try:
        yield
    finally:
        _WATCHERS.remove(watcher)


def _count(optimizer: torch.optim.Optimizer, is_bad: torch.Tensor) -> None:
    asked, skipped = _COUNTS.get(optimizer, (0, 0))
    _COUNTS[optimizer] = (asked + 1, skipped + is_bad.long())


def _step_unless(optimizer: torch.optim.Optimizer, is_bad: torch.Tensor) -> None:
    """Step a fused optimiser, which does nothing where ``is_bad``; this is how torch's ``GradScaler`` tells it."""
    optimizer.found_inf = is_bad.float()  # type: ignore[attr-defined]
    try:
        optimizer.step()
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]


def is_rounded(device: torch.device) -> bool:
    """Return whether products of matrices are rounded here to less than float32, in which rollouts are collected.

    The ratio of a probability to that of the rollout is then another than 1 before the first step, by the rounding: the
    more so the smaller the deviation. An update first evaluates its batch again, so that it compares like with like.
    """
    return torch.is_autocast_enabled(device.type)


def rounded_log_prob(batch: TensorDict, now: TensorDict) -> torch.Tensor:
    """Return the log-probabilities that ratios are to be taken to where products are rounded, in their shape.

    Args:
        batch: from ``learning_batch``, with ``sample_log_prob`` and, where samples may be an older policy's, ``lag``.
            Theirs stays as it was stored: the parameters that it came from are gone.
        now: the policy's evaluation of the batch.
    """
    stored, lag = batch["sample_log_prob"], batch.get("lag", None)
    log_prob = action_log_prob(now)
    return log_prob if lag is None else torch.where(with_dims_of(stored, lag) > 0, stored, log_prob)


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
