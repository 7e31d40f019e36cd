"""Policies that need no training, for looking at a task. Legend: ... any batch dimensions, A action size."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.models import Policy
from embodichain.lab.gym.envs import EmbodiedEnv


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


@dataclass(frozen=True)
class ActionNumber:
    """One number of an action.

    Attributes:
        moves: the joint or coordinate; empty where it is none alone.
        meaning: of what is commanded, with units; empty where that is not known.
        low: its least value, which may be without end.
        commands: what these two command; without end, or two zeros without ``moves``, where that is not known.
    """

    term: str
    moves: str
    meaning: str
    low: float
    high: float
    commands: tuple[float, float]


def action_numbers(env: EmbodiedEnv) -> list[ActionNumber]:
    """Return all A of them, in their order."""
    numbers = []
    for name, term in env.action_manager.terms.items():
        low, high = (limit.tolist() for limit in term.action_limits)
        found = term.command_map()
        one_each = found is not None and len(found.names) == term.action_dim
        for i in range(term.action_dim):
            moves, meaning, commands = "", "", (0.0, 0.0)
            if found is not None and one_each:
                moves, meaning = found.names[i], found.meaning
                ends = found.offset[i] + found.factor[i] * torch.stack([limit[i] for limit in term.action_limits])
                commands = tuple(ends.clamp(found.low[i], found.high[i]).tolist())
            numbers.append(ActionNumber(name, moves, meaning, low[i], high[i], commands))
    return numbers
