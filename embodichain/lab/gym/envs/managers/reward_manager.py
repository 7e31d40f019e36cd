"""The reward as a weighted sum of terms. Shapes: N environments, K terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import Manager
from embodichain.lab.gym.envs.managers.cfg import RewardCfg
from embodichain.lab.gym.envs.managers.checks import build_terms, wrong_return
from embodichain.lab.gym.envs.managers.term_env import TermEnv


class RewardManager(Manager):
    """Computes the terms ``func(env, obs, action, info, **params)``, each [N], and their weighted sum."""

    def __init__(self, cfgs: Mapping[str, RewardCfg], env: TermEnv) -> None:
        self._terms = build_terms(cfgs, env, "env.rewards")
        super().__init__(env, self._terms)
        weights = [term.cfg.weight for term in self._terms]
        self._shape = torch.Size([env.num_envs])
        self._weights = torch.tensor(weights, device=env.device)[:, None]

    def compute(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the reward [N] and the weighted terms by name, [N] each.

        Raises:
            ConfigError: a term returns another type or shape.
        """
        if not self._terms:
            return torch.zeros(self._env.num_envs, device=self._env.device), {}
        env, random, values = self._env, self._env.random, []
        with random.stream("rewards", tick=env.elapsed_steps):
            for term in self._terms:
                random.turn_to(term.stream)
                values.append(term.func(env, obs, action, info, **term.params))
        for term, value in zip(self._terms, values, strict=True):
            if getattr(value, "shape", None) != self._shape:
                raise wrong_return(f"env.rewards.{term.name}", term.func, value, f"[N] = {list(self._shape)}")
        weighted = torch.stack(values) * self._weights
        return weighted.sum(dim=0), dict(zip((t.name for t in self._terms), weighted.unbind(), strict=True))
