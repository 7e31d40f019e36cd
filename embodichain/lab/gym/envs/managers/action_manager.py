"""From the policy's actions to targets of the drives. Shapes: N environments, A action size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import ActionTerm, Manager
from embodichain.lab.gym.envs.managers.cfg import ActionTermCfg
from embodichain.lab.gym.envs.managers.checks import build_terms
from embodichain.utils import ConfigError

if TYPE_CHECKING:
    from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv

__all__ = ["ActionManager"]


class ActionManager(Manager):
    """Hands each term its part of the action, in the order of the config."""

    def __init__(self, cfgs: Mapping[str, ActionTermCfg], env: EmbodiedEnv) -> None:
        if not cfgs:
            raise ConfigError("env.actions: at least one action term is needed")
        self.terms: dict[str, ActionTerm] = {term.name: term.func for term in build_terms(cfgs, env, "env.actions")}
        """By name, in the order of the config."""
        lows, highs = zip(*(term.action_limits for term in self.terms.values()), strict=True)
        self.low: Tensor = torch.cat(lows)
        """Lowest action, [A]."""
        self.high: Tensor = torch.cat(highs)
        """Highest action, [A]."""

    @property
    def total_action_dim(self) -> int:
        """A, over all terms."""
        return sum(term.action_dim for term in self.terms.values())

    @property
    def action_type(self) -> str:
        """The first term's name; an action may be given to the environment as ``{action_type: tensor}``."""
        return next(iter(self.terms))

    def process_action(self, action: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the targets of the active joints by kind for actions [N, A], as one tensor or by term name."""
        if not isinstance(action, Tensor):
            action = torch.cat([action[name] for name in self.terms], dim=1)
        if len(self.terms) == 1:
            return next(iter(self.terms.values())).process_action(action)
        targets: dict[str, Tensor] = {}
        first = 0
        for term in self.terms.values():
            targets |= term.process_action(action[:, first : first + term.action_dim])
            first += term.action_dim
        return targets

    def reset(self, env_ids: Tensor) -> None:
        """Tell the terms which environments [n] begin a new episode."""
        for term in self.terms.values():
            term.reset(env_ids)
