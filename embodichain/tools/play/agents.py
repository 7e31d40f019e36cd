"""Policies that need no training, to look at a task alone. Legend: ... any batch dimensions, A action size."""

from __future__ import annotations

import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.models import Policy


class ZeroAgent(Policy):
    """Does nothing: all actions are 0.

    Args:
        action_space: of one environment, [A].
    """

    def __init__(self, action_space: spaces.Box) -> None:
        super().__init__()
        self._size = action_space.shape[-1]

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Write ``action`` [..., A]; see ``Policy.forward``."""
        td["action"] = self._choose(td["obs"].new_zeros(*td.batch_size, self._size))
        td["sample_log_prob"] = torch.zeros(td.batch_size)
        return self.get_value(td)

    def get_value(self, td: TensorDict) -> TensorDict:
        """Write zeros as ``value`` [...]."""
        td["value"] = torch.zeros(td.batch_size)
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Nothing can be learned here."""
        raise NotImplementedError

    def _choose(self, zeros: torch.Tensor) -> torch.Tensor:
        return zeros


class RandomAgent(ZeroAgent):
    """Draws actions evenly from the action space, or from [-1, 1] where it has no bounds."""

    def __init__(self, action_space: spaces.Box) -> None:
        super().__init__(action_space)
        self._low = torch.as_tensor(action_space.low).clamp(-1e6, 1e6)
        self._high = torch.as_tensor(action_space.high).clamp(-1e6, 1e6)
        endless = ~torch.as_tensor(action_space.bounded_below & action_space.bounded_above)
        self._low[endless], self._high[endless] = -1.0, 1.0

    def _choose(self, zeros: torch.Tensor) -> torch.Tensor:
        return self._low + (self._high - self._low) * torch.rand_like(zeros)


AGENTS: dict[str, type[ZeroAgent]] = {"zero": ZeroAgent, "random": RandomAgent}
"""By the names that ``play --agent`` takes."""
