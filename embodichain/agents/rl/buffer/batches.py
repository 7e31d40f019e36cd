"""Batches of a rollout's transitions, and minibatches of them.

Legend: N envs, T rollout steps, L sequence length, B minibatch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer.rollout_buffer import transition_view
from embodichain.agents.rl.distributed import get_process_group
from embodichain.utils import ConfigError


class BatchReader(Protocol):
    """Attributes of a policy that ``learning_batch`` reads."""

    @property
    def evaluation_fields(self) -> tuple[str, ...]:
        """Fields of the rollout that ``evaluate_actions`` reads in addition to ``action``."""

    @property
    def state_size(self) -> int:
        """Size of the recurrent state; 0: not recurrent."""

    @property
    def sequence_length(self) -> int | None:
        """L, or None: single steps; for recurrent policies the whole rollout."""


def check_sequences(policy: BatchReader, num_steps: int, batch_size: int) -> None:
    """Check that a policy's sequences fit a rollout and a minibatch.

    Raises:
        ConfigError: T is not divisible by L, or L is more than B.
    """
    _check_length(policy, num_steps)
    if policy.sequence_length is not None or policy.state_size:
        _check_minibatch(batch_size, policy.sequence_length or num_steps)


def learning_batch(rollout: TensorDict, policy: BatchReader, **columns: torch.Tensor) -> TensorDict:
    """Return a rollout's transitions as the policy's ``evaluate_actions`` and the algorithm's loss need them.

    Args:
        policy: policy with ``evaluation_fields`` and ``sequence_length``.
        columns: further tensors [N, T], by name: advantages, returns, masks.

    Returns:
        ``action``, ``sample_log_prob``, with chunks ``executed``, the evaluation fields and the columns: [N*T], or
        [N*T / L, L] with sequences. Row n*T + t of the one, or element [n*T/L + t // L, t % L] of the other, is step t
        of environment n.

    Raises:
        ConfigError: T is not divisible by L.
    """
    transitions = transition_view(rollout, flatten=False)
    num_envs, num_steps = transitions.batch_size
    names = (*policy.evaluation_fields, "action", "sample_log_prob")
    executed = ("executed",) if "executed" in transitions.keys() else ()  # noqa: SIM118 (a TensorDict, not a dict)
    batch = transitions.select(*dict.fromkeys((*names, *executed)))
    for name, column in columns.items():
        batch[name] = column
    length = policy.sequence_length
    if length is None:
        return batch if policy.state_size else batch.reshape(-1)
    _check_length(policy, num_steps)
    return batch.reshape(num_envs * num_steps // length, length)


def iterate_minibatches(flat: TensorDict, batch_size: int, device: torch.device | str) -> Iterator[TensorDict]:
    """Yield every row exactly once, shuffled by torch's global generator, in minibatches.

    All processes of the training get the same number of minibatches: B transitions with equal numbers of rows, else
    more or fewer (see ``minibatch_sizes``).

    Args:
        flat: batch size [M], M transitions; or [M, L], M sequences of L transitions.
        batch_size: B, transitions in a minibatch; of sequences, as many as fit. The last minibatch has the remainder.

    Raises:
        ConfigError: a sequence has more than ``batch_size`` transitions.
    """
    length = flat.batch_size[1] if flat.batch_dims > 1 else 1
    _check_minibatch(batch_size, length)
    order = torch.randperm(flat.batch_size[0], device=flat.device)
    counts = [count for (count,) in get_process_group().gather(torch.tensor([len(order)])).tolist()]
    for rows in order.split(minibatch_sizes(len(order), batch_size // length, counts)):
        yield select_rows(flat, rows).to(device)


def select_rows(flat: TensorDict, rows: torch.Tensor) -> TensorDict:
    """Return ``flat[rows]``, for which ``index_select`` needs a third of the time that indexing does."""
    batch_size = torch.Size([len(rows), *flat.batch_size[1:]])
    selected = flat.apply(lambda values: values.index_select(0, rows), batch_size=batch_size)
    assert selected is not None  # it has entries
    return selected


def minibatch_sizes(own: int, size: int, counts: Sequence[int]) -> list[int]:
    """Return the number of a process's rows in each minibatch; all processes have the same number of minibatches.

    A minibatch has ``size`` rows per process on average, the last one the remainder. Each process contributes in
    proportion to its rows, at least one: its minibatches are empty only if it has no rows.

    Args:
        own: rows of this process.
        size: rows a process in a minibatch.
        counts: rows of each process.
    """
    total, together = sum(counts), size * len(counts)
    if not total:
        return [0]
    least = min(count for count in counts if count)
    together = max(together, -(-total // least))  # fewer and larger ones, if one process has very few rows
    ends = [own * min(end, total) // total for end in range(together, total + together, together)]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _check_length(policy: BatchReader, num_steps: int) -> None:
    length = policy.sequence_length
    if length is not None and num_steps % length:
        raise ConfigError(
            f"policy.sequence_length: a rollout of {num_steps} steps (trainer.buffer_size) cannot be cut into "
            f"sequences of {length}: it must be a multiple"
        )


def _check_minibatch(batch_size: int, length: int) -> None:
    if batch_size < length:
        raise ConfigError(
            f"algorithm.cfg.batch_size: {batch_size} transitions are less than one sequence of the policy, {length} "
            f"(policy.sequence_length; by default the whole rollout)"
        )
