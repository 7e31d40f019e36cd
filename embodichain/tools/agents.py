"""Policies that need no training, for looking at a task. Legend: ... any batch dimensions, A action size."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.models import Policy
from embodichain.lab.gym.envs import EmbodiedEnv


class ZeroAgent(Policy):
    """Returns zero actions, of one environment's action space [A]."""

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
        """Evaluation of actions, not available: there are no parameters."""
        raise NotImplementedError

    def _choose(self, zeros: torch.Tensor) -> torch.Tensor:
        return zeros


class RandomAgent(ZeroAgent):
    """Draws uniform actions from the action space, or from [-1, 1] where it is unbounded."""

    def __init__(self, action_space: spaces.Box) -> None:
        super().__init__(action_space)
        self._low = torch.as_tensor(action_space.low).clamp(-1e6, 1e6)
        self._high = torch.as_tensor(action_space.high).clamp(-1e6, 1e6)
        unbounded = ~torch.as_tensor(action_space.bounded_below & action_space.bounded_above)
        self._low[unbounded], self._high[unbounded] = -1.0, 1.0

    def _choose(self, zeros: torch.Tensor) -> torch.Tensor:
        return self._low + (self._high - self._low) * torch.rand_like(zeros)


AGENTS: dict[str, type[ZeroAgent]] = {"zero": ZeroAgent, "random": RandomAgent}
"""Agents by the names of ``play --agent``."""
_NOTCHES = 200  # of a slider


@dataclass(frozen=True)
class ActionNumber:
    """One number of an action, from ``low`` to ``high``, which may be infinite.

    Attributes:
        moves: the joint or coordinate that it commands; empty if there is not exactly one.
        meaning: meaning of the command, with units; empty if unknown.
        commands: the commands of ``low`` and ``high``; zeros without ``moves``.
    """

    term: str
    moves: str
    meaning: str
    low: float
    high: float
    commands: tuple[float, float]


def action_numbers(env: EmbodiedEnv) -> list[ActionNumber]:
    """Return the A numbers of the action, in order."""
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


class HandAgent(ZeroAgent):
    """Acts as set by the sliders of a page, which begin at 0 or the nearest limit."""

    def __init__(self, env: EmbodiedEnv) -> None:
        super().__init__(env.single_action_space)
        self._numbers = action_numbers(env)
        self._sliders: list[tuple[Any, float]] = []  # each with its first value

    def place_sliders(self, gui: Any) -> None:
        """Add a slider for each number of the action to a viser server's panel."""

        def let_go(event: Any) -> None:
            for slider, start in self._sliders:
                slider.value = start

        with gui.add_folder("Action"):
            gui.add_button("Let go").on_click(let_go)
            for i, number in enumerate(self._numbers):
                low = number.low if math.isfinite(number.low) else -1.0
                high = number.high if math.isfinite(number.high) else 1.0
                start = min(max(0.0, low), high)
                label = number.moves or f"{number.term} {i}"
                self._sliders.append((gui.add_slider(label, low, high, (high - low) / _NOTCHES, start), start))

    def _choose(self, zeros: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[slider.value for slider, _ in self._sliders]], dtype=zeros.dtype)
