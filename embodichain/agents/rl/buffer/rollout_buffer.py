"""One preallocated rollout, filled by the collector and the environment, read by the algorithm.

Legend: N envs, T rollout steps.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer.layout import allocate_rollout, env_steps


class RolloutBuffer:
    """Storage for one rollout, reused for the next.

    Args:
        num_envs: N.
        rollout_len: T, steps per environment.
        obs_dim: O, flattened observation size.
        action_dim: A, action size.
        fields: further keywords of ``allocate_rollout``.
    """

    def __init__(
        self,
        num_envs: int,
        rollout_len: int,
        obs_dim: int,
        action_dim: int,
        device: torch.device | str,
        **fields: Any,
    ) -> None:
        self._rollout = allocate_rollout(num_envs, rollout_len, obs_dim, action_dim, device, **fields)
        self._full = False

    def start_rollout(self) -> TensorDict:
        """Return the shared rollout [N, T+1] to write into; it still holds the values of the last one.

        Raises:
            RuntimeError: the last rollout was added and not read yet.
        """
        if self._full:
            raise RuntimeError("the buffer holds a complete rollout that was not read: call get() first")
        return self._rollout

    def add(self, rollout: TensorDict) -> None:
        """Declare the rollout complete.

        Args:
            rollout: the one of ``start_rollout``; nothing is copied.

        Raises:
            ValueError: the argument is another TensorDict.
        """
        if rollout is not self._rollout:
            raise ValueError("add() takes the rollout that start_rollout() returned, got another TensorDict")
        self._full = True

    def get(self, flatten: bool = True) -> TensorDict:
        """Return the transitions [N*T], or the whole rollout [N, T+1], and free the buffer for the next one.

        Raises:
            RuntimeError: no rollout was added since the last call.
        """
        if not self._full:
            raise RuntimeError("the buffer holds no complete rollout: call add() first")
        self._full = False
        return transition_view(self._rollout, flatten=True) if flatten else self._rollout

    def is_full(self) -> bool:
        """Return whether a rollout was added and not read yet."""
        return self._full


def check_rollout(rollout: TensorDict) -> None:
    """Refuse an incomplete rollout: shuffled transitions have no next observation.

    Raises:
        ValueError: its batch size is not [N, T+1].
    """
    if rollout.batch_dims != 2:
        raise ValueError(f"a complete rollout has batch size [N, T+1], got {list(rollout.batch_size)}")


def num_env_steps(rollout: TensorDict) -> int:
    """Return the number of environment steps in a rollout [N, T+1]: N T; with chunks of actions, the executed ones."""
    return int(env_steps(rollout).sum())


def transition_view(rollout: TensorDict, flatten: bool) -> TensorDict:
    """Return the T transitions of a rollout [N, T+1], without the bootstrap slot.

    Args:
        rollout: batch size [N, T+1].
        flatten: join the two batch dimensions; row n*T + t is step t of environment n.

    Returns:
        A view of batch size [N, T], or a copy of batch size [N*T].
    """
    transitions = rollout[:, :-1]
    return transitions.reshape(-1) if flatten else transitions
