"""What the numbers of an environment's action do, in words. Legend: A action size."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from embodichain.lab.gym.envs import EmbodiedEnv


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
