"""Threads and precision of an update."""

from contextlib import AbstractContextManager
from typing import Literal

import torch

from embodichain.agents.rl.models import Policy
from embodichain.utils import logger

WORK_OF_A_THREAD = 32e6
"""Floating-point operations of a matrix product that repay a thread's being woken, measured on two cores."""


def worthwhile_threads(policy: Policy, batch_size: int, rollout_length: int, available: int) -> int:
    """Return the number of threads with which a gradient step is fastest, from the size of its largest matrix product.

    A product of some million operations is done before a second thread has woken up: with networks of 64 units a second
    thread makes an update several times slower. It depends on sizes alone, so that trainings are reproducible to the
    last bit.

    Args:
        batch_size: transitions of a minibatch.
        rollout_length: steps of a rollout; a recurrent policy without ``sequence_length`` computes them one by one.
        available: threads available.
    """
    weights = [p for p in policy.parameters() if p.dim() > 1]
    if any(p.dim() > 2 for p in weights):
        return available  # a convolution's product has a row for each place in the image
    length = (policy.sequence_length or rollout_length) if policy.state_size else 1
    rows = max(1, batch_size // length)
    work = 2 * rows * max((p.numel() for p in weights), default=0)
    return int(min(available, max(1, work // WORK_OF_A_THREAD)))


def warn_of_other_threads(before: int, now: int) -> None:
    """Warn if a resumed training computes its updates with another number of threads than before."""
    if before != now:
        logger.log_warning(
            f"the run computed its updates with {_threads(before)}, and now does with {_threads(now)}: sums are made "
            f"in another order, so that the resumed training is not bit-identical. With trainer.torch_threads={before} "
            "it is"
        )


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def update_precision(precision: Literal["float32", "bf16"], device: torch.device) -> AbstractContextManager[object]:
    """Return the context of an update in a precision.

    With ``"bf16"`` matrix products and convolutions compute in bfloat16, forwards and backwards (``torch.autocast``).
    Parameters, optimiser, losses and, in the built-in policies, log-probabilities and values stay float32.
    """
    # Parameters change at each step: their bfloat16 copies must not be cached.
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)
