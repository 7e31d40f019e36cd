"""One preallocated rollout, filled by the collector and the environment; batches of its transitions, and minibatches.

Legend: N envs, T rollout steps, L sequence length, B minibatch.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer.layout import allocate_rollout, transition_view
from embodichain.agents.rl.distributed import get_process_group
from embodichain.utils import ConfigError


class RolloutBuffer:
    """Storage for one rollout, reused for the next; arguments as of ``allocate_rollout``."""

    def __init__(
        self, num_envs: int, rollout_len: int, obs_dim: int, action_dim: int, device: torch.device | str, **fields: Any
    ) -> None:
        self._rollout = allocate_rollout(num_envs, rollout_len, obs_dim, action_dim, device, **fields)
        self._full = False

    def start_rollout(self) -> TensorDict:
        """Return the shared rollout [N, T+1] to write into; it still holds the values of the last one."""
        if self._full:
            raise RuntimeError("the buffer holds a complete rollout that was not read: call get() first")
        return self._rollout

    def add(self, rollout: TensorDict) -> None:
        """Declare the rollout of ``start_rollout`` complete; nothing is copied."""
        if rollout is not self._rollout:
            raise ValueError("add() takes the rollout that start_rollout() returned, got another TensorDict")
        self._full = True

    def get(self, flatten: bool = True) -> TensorDict:
        """Return the transitions [N*T], or the whole rollout [N, T+1], and free the buffer for the next one."""
        if not self._full:
            raise RuntimeError("the buffer holds no complete rollout: call add() first")
        self._full = False
        return transition_view(self._rollout, flatten=True) if flatten else self._rollout

    def is_full(self) -> bool:
        """Return whether a rollout was added and not read yet."""
        return self._full


def check_rollout(rollout: TensorDict) -> None:
    """Raise a ValueError for a batch size other than [N, T+1]: shuffled transitions have no next observation."""
    if rollout.batch_dims != 2:
        raise ValueError(f"a complete rollout has batch size [N, T+1], got {list(rollout.batch_size)}")


def chunk_problems(buffer_size: int, length: int) -> list[str]:
    """Return the error of rollouts of ``buffer_size`` steps that chunks of ``length`` actions do not divide."""
    if buffer_size % length == 0:
        return []
    below = buffer_size // length * length
    near = " or ".join(str(multiple) for multiple in (below, below + length) if multiple)
    return [
        f"trainer.buffer_size: {buffer_size} steps cannot be divided into chunks of {length} actions "
        f"(policy.chunk_length); the nearest multiple is {near}"
    ]


def check_sequences(policy: Any, num_steps: int, batch_size: int) -> None:
    """Check that T is divisible by the policy's L, and L is not more than B; else a ConfigError."""
    length = policy.sequence_length
    if length is not None and num_steps % length:
        raise ConfigError(
            f"policy.sequence_length: a rollout of {num_steps} steps (trainer.buffer_size) cannot be cut into "
            f"sequences of {length}: it must be a multiple"
        )
    if (length is not None or policy.state_size) and batch_size < (length or num_steps):
        raise ConfigError(
            f"algorithm.cfg.batch_size: {batch_size} transitions are less than one sequence of the policy, "
            f"{length or num_steps} (policy.sequence_length; by default the whole rollout)"
        )


def learning_batch(rollout: TensorDict, policy: Any, **columns: torch.Tensor) -> TensorDict:
    """Return a rollout's transitions as the policy's ``evaluate_actions`` and the algorithm's loss need them.

    Args:
        policy: a ``Policy``.
        columns: further tensors [N, T], by name: advantages, returns, masks.

    Returns:
        ``action``, ``sample_log_prob``, with chunks ``executed``, the evaluation fields and the columns: [N*T], or
        [N*T / L, L] with sequences. Row n*T + t of the one, or element [n*T/L + t // L, t % L] of the other, is step t
        of environment n.
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
    return batch.reshape(num_envs * (num_steps // length), length)  # an error unless T is divisible by L


def iterate_minibatches(flat: TensorDict, batch_size: int, device: torch.device | str) -> Iterator[TensorDict]:
    """Yield every row exactly once, shuffled by torch's global generator, in minibatches.

    All processes of the training get the same number of minibatches: B transitions with equal numbers of rows, else
    more or fewer (see ``minibatch_sizes``).

    Args:
        flat: batch size [M], M transitions; or [M, L], M sequences of L transitions.
        batch_size: B, transitions in a minibatch; of sequences, as many as fit. The last minibatch has the remainder.
    """
    length = flat.batch_size[1] if flat.batch_dims > 1 else 1
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
