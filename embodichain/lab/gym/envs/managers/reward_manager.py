"""The reward as a weighted sum of terms. Shapes: N environments, K terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import Manager, Term
from embodichain.lab.gym.envs.managers.cfg import RewardCfg
from embodichain.lab.gym.envs.managers.checks import build_terms, leaving_unchanged, wrong_return
from embodichain.lab.gym.envs.managers.term_env import TermEnv


class RewardManager(Manager):
    """Computes the terms ``func(env, obs, action, info, **params)``, each [N], and their weighted sum."""

    def __init__(self, cfgs: Mapping[str, RewardCfg], env: TermEnv) -> None:
        self._terms = build_terms(cfgs, env, "env.rewards")
        super().__init__(env, self._terms)
        weights = [term.cfg.weight for term in self._terms]
        self._shape = torch.Size([env.num_envs])
        self._weights = torch.tensor(weights, device=env.device)[:, None]
        self._is_first = True  # the next call

    def compute(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the reward [N] and the weighted terms by name, [N] each.

        Raises:
            ConfigError: a term returns another type or shape, or looks up a key that is not there; in the first call
                also if it writes into its arguments.
        """
        if not self._terms:
            return torch.zeros(self._env.num_envs, device=self._env.device), {}
        env, random, values = self._env, self._env.random, []
        call: Callable[..., Any] = self._call_first if self._is_first else Term.__call__
        with random.stream("rewards", tick=env.elapsed_steps):
            for term in self._terms:
                random.turn_to(term.stream)
                values.append(call(term, env, obs, action, info))
        self._is_first = False
        for term, value in zip(self._terms, values, strict=True):
            if not (isinstance(value, Tensor) and value.shape == self._shape):
                raise wrong_return(term.place, term.func, value, f"[N] = {list(self._shape)}")
        weighted = torch.stack(values) * self._weights
        return weighted.sum(dim=0), dict(zip((t.name for t in self._terms), weighted.unbind(), strict=True))

    def _call_first(
        self, term: Term[RewardCfg], env: TermEnv, obs: TensorDict, action: Tensor, info: dict[str, Any]
    ) -> Any:
        shared = {**dict(obs.flatten_keys("/").items()), "action": action, **info.get("metrics", {})}
        with leaving_unchanged(term.place, term.func, shared):
            return term(env, obs, action, info)
