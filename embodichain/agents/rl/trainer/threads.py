"""Threads and precision of an update."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, TypeGuard

import torch

from embodichain.agents.rl.models import ActorCritic, Policy
from embodichain.agents.rl.models.mlp_by_rows import RowThreads, RunByRows, columns_and_mlp
from embodichain.utils import logger
from embodichain.utils.device import torch_threads

WORK_OF_A_THREAD = 32e6
"""Floating-point operations of a matrix product that repay a thread's being woken, measured on two cores."""


def worthwhile_threads(policy: Policy, batch_size: int, rollout_length: int, available: int) -> int:
    """Return the number of threads with which a gradient step is fastest, from the size of its largest matrix product.

    A product of some million operations is done before a second thread has woken up: with networks of 64 units a second
    thread makes an update several times slower. If more than two share the rows, each needs twice the work (estimated
    on 2 processors). It depends on sizes alone, so that trainings are reproducible to the last bit.

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
    count = max(1, work // WORK_OF_A_THREAD)
    if _can_split_rows(policy) and count > 2:
        count = max(2, count // 2)  # the more threads, the longer each waits for the interpreter's lock
    return int(min(available, count))


@contextmanager
def update_threads(policy: Policy, count: int) -> Iterator[None]:
    """Compute with ``count`` threads in the block.

    If the policy evaluates actions as ``ActorCritic`` does, with networks that ``columns_and_mlp`` knows, each thread
    takes rows of a minibatch. All other policies get torch's own threads.
    """
    if count == 1 or not _can_split_rows(policy):
        with torch_threads(count):
            yield
        return
    plain = policy.run_networks
    with torch_threads(1), RowThreads(count) as threads:
        policy.run_networks = RunByRows(threads)
        try:
            yield
        finally:
            policy.run_networks = plain


def _can_split_rows(policy: Policy) -> TypeGuard[ActorCritic]:
    return (
        isinstance(policy, ActorCritic)
        and type(policy).evaluate_actions is ActorCritic.evaluate_actions
        and all(columns_and_mlp(x) is not None for x in (policy.actor, policy.critic) if x is not None)
    )


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
